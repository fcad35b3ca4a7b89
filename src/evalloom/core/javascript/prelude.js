// Runs in each new context before the code of a user: calls it, and turns what it returns or throws into JSON.
// The functions are named evalloom_… so that the reader of stack traces can skip them.
(function () {
  "use strict";
  const { parse, stringify } = JSON;
  const evaluate = globalThis.eval;
  const needed = [];
  const modules = { __proto__: null };
  const timers = [];
  let request, lastTimer = 0, answer = "";

  function evalloom_error(message, kind) {
    const error = new Error(message);
    error.evalloomKind = kind;
    return error;
  }

  function evalloom_text(value) {
    try { return String(value); } catch { return "its text cannot be shown"; }
  }

  function evalloom_failure(thrown) {
    if (needed.length) return "n" + stringify(needed);
    let told = { message: "" };
    try {
      if (thrown !== null && typeof thrown === "object" && ("message" in thrown || "stack" in thrown)) {
        told = { name: evalloom_text(thrown.name ?? ""), message: evalloom_text(thrown.message ?? ""),
          stack: evalloom_text(thrown.stack ?? ""), kind: evalloom_text(thrown.evalloomKind ?? "") };
      } else {
        told.message = typeof thrown === "object" && thrown !== null ? stringify(thrown) : evalloom_text(thrown);
      }
    } catch { told.message = "what it threw cannot be shown"; }
    return "e" + stringify(told);
  }

  function evalloom_plain(key, value) {
    if (typeof value === "number" && value - value !== 0) throw evalloom_error(`${key ? key + ": " : ""}${value} is not JSON`, "result");
    if (typeof value === "function" || typeof value === "symbol") throw evalloom_error(`${key ? key + ": " : ""}a ${typeof value} is not JSON`, "result");
    if (typeof value === "bigint") throw evalloom_error(`${key ? key + ": " : ""}a BigInt is not JSON; convert it with Number()`, "result");
    return value;
  }

  function evalloom_result(value) {
    if (needed.length) return "n" + stringify(needed);
    if (value === undefined) return "u";
    try {
      const text = stringify(value, evalloom_plain);
      return text === undefined ? "u" : "v" + text;
    } catch (error) {
      if (error instanceof TypeError && /circular/.test(error.message)) return evalloom_failure(evalloom_error("it contains itself", "result"));
      return evalloom_failure(error);
    }
  }

  function evalloom_join(folder, name) {
    const parts = folder ? folder.split("/") : [];
    for (const part of name.split("/")) {
      if (part === "..") { if (parts.length && parts[parts.length - 1] !== "..") parts.pop(); else parts.push(".."); }
      else if (part !== "." && part !== "") parts.push(part);
    }
    return parts.join("/");
  }

  function evalloom_require_from(folder) {
    function evalloom_require(name) {
      name = evalloom_text(name);
      if (!/^\.{1,2}(\/|$)/.test(name)) throw evalloom_error("!" + name, "module");
      const path = evalloom_join(folder, name);
      const file = request.files[path];
      if (file === undefined) { needed.push(path); throw evalloom_error(`${name} is being read`, "module"); }
      if (file.error) throw evalloom_error(file.error, "module");
      return evalloom_load(file).exports;
    }
    return evalloom_require;
  }

  function evalloom_load(file) {
    const known = modules[file.id];
    if (known) return known;
    const module = modules[file.id] = { exports: {}, id: file.id, filename: file.id, loaded: false, children: [], paths: [] };
    try {
      if (file.json) module.exports = parse(file.text);
      else {
        const cut = file.id.lastIndexOf("/");
        const folder = cut < 0 ? "" : file.id.slice(0, cut);
        const code = evaluate("\n".repeat(file.first) + "(function (exports, require, module, __filename, __dirname) {" + file.text + "\n})");
        code.call(module.exports, module.exports, evalloom_require_from(folder), module, "/" + file.id, "/" + folder);
      }
    } catch (error) {
      delete modules[file.id];
      throw error;
    }
    module.loaded = true;
    return module;
  }

  function evalloom_exported(file, name) {
    const found = evalloom_load(file).exports;
    const byDefault = typeof found === "function" ? found : found?.default;
    if (name) {
      const wanted = found?.[name] ?? found?.default?.[name];
      if (typeof wanted === "function") return wanted;
      throw evalloom_error(`${file.id} exports no function ${name}`, "module");
    }
    if (typeof byDefault === "function") return byDefault;
    if (byDefault !== undefined) return () => byDefault;
    const names = Object.keys(found ?? {}).filter((key) => typeof found[key] === "function");
    if (names.length) throw evalloom_error(`${file.id} exports ${names.join(", ")} and no default; name one as file://${file.id}:${names[0]}`, "module");
    if (found !== null && typeof found === "object" && !Object.keys(found).length) throw evalloom_error(`${file.id} exports nothing; write module.exports = (output, context) => …`, "module");
    return () => found;
  }

  function evalloom_compiled() {
    if (request.file) return evalloom_exported(request.file, request.function);
    let first;
    for (const body of request.bodies) {
      try { return evaluate("(function (" + request.names.join(", ") + ") {" + body + "\n})"); }
      catch (error) { first ??= error; if (!(error instanceof SyntaxError)) throw error; }
    }
    throw first;
  }

  function evalloom_run(text) {
    request = parse(text);
    try {
      if (request.more) evaluate(request.more)(evalloom_error);
      globalThis.require = evalloom_require_from(request.home);
      let value = evalloom_compiled().apply(undefined, request.values);
      // Inline code may be a function instead of the body of one.
      if (!request.file && typeof value === "function") value = value.apply(undefined, request.values);
      if (value === null || typeof value !== "object" || typeof value.then !== "function") return evalloom_result(value);
      Promise.resolve(value).then(
        (settled) => { answer = evalloom_result(settled); },
        (error) => { answer = evalloom_failure(error); });
      return "p";
    } catch (error) {
      return evalloom_failure(error);
    }
  }

  globalThis.globalThis = globalThis;
  globalThis.global = globalThis;
  const silent = () => undefined;
  globalThis.console = { log: silent, info: silent, warn: silent, error: silent, debug: silent, trace: silent, table: silent,
    dir: silent, group: silent, groupEnd: silent, time: silent, timeEnd: silent, assert: silent, count: silent };
  globalThis.process = { env: {}, argv: [], platform: "", version: "", versions: {}, cwd: () => "/",
    mainModule: { get require() { return globalThis.require; } } };
  globalThis.setTimeout = function (code, wait, ...values) {
    timers.push({ id: ++lastTimer, at: Number(wait) || 0, run: () => code(...values) });
    return lastTimer;
  };
  globalThis.setImmediate = (code, ...values) => globalThis.setTimeout(code, 0, ...values);
  globalThis.clearTimeout = globalThis.clearImmediate = function (id) {
    const index = timers.findIndex((timer) => timer.id === id);
    if (index >= 0) timers.splice(index, 1);
  };

  return function evalloom_step(command, text) {
    if (command === "run") return evalloom_run(text);
    if (answer) return answer;
    if (needed.length) return "n" + stringify(needed);
    if (!timers.length) return "w";
    // Time does not pass: the timer that is due first runs at once.
    let next = 0;
    for (let index = 1; index < timers.length; index++) if (timers[index].at < timers[next].at) next = index;
    const [timer] = timers.splice(next, 1);
    for (const other of timers) other.at -= timer.at;
    try { timer.run(); } catch (error) { answer = evalloom_failure(error); return answer; }
    return "p";
  };
})()
