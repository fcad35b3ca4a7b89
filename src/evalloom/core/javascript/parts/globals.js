// Stand-ins for what the engine lacks: console, process without anything in it, timers for which no time passes.
(function (state) {
  "use strict";
  const { timers } = state, silent = () => undefined;
  let last = 0;
  const names = "log info warn error debug trace table dir group groupCollapsed groupEnd time timeEnd timeLog assert count clear";
  globalThis.console = Object.fromEntries(names.split(" ").map((name) => [name, silent]));
  globalThis.global = globalThis;
  globalThis.process = { env: {}, argv: [], platform: "", version: "", versions: {}, cwd: () => "/", nextTick: queueMicrotask,
    mainModule: { get require() { return globalThis.require; } } };
  globalThis.setTimeout = (code, wait, ...values) => {
    timers.push({ id: ++last, at: Number(wait) || 0, run: () => code(...values) });
    return last;
  };
  globalThis.setImmediate = (code, ...values) => globalThis.setTimeout(code, 0, ...values);
  globalThis.clearTimeout = globalThis.clearImmediate = (id) => {
    const index = timers.findIndex((timer) => timer.id === id);
    if (index >= 0) timers.splice(index, 1);
  };
  state.tick = () => {
    let next = 0;
    for (let index = 1; index < timers.length; index++) if (timers[index].at < timers[next].at) next = index;
    const [timer] = timers.splice(next, 1);
    for (const other of timers) other.at -= timer.at;
    timer.run();
  };
})
