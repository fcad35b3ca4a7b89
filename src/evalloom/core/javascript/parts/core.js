// Runs first in each new context: calls the code, and turns what it returns or throws into a text.
// Kept small, because each call pays for it. Names begin with evalloom_, so that readers of stack traces can skip them.
(function () {
  "use strict";
  const { parse, stringify } = JSON, evaluate = globalThis.eval, state = { evaluate, needed: [], timers: [] };
  // Long texts that `+` joins are ropes inside, which the way out of the engine does not know.
  const flat = (kind, text) => [kind, text].join("");
  let answer = "";
  function evalloom_failure(thrown) {
    if (state.needed.length) return flat("n", stringify(state.needed));
    try {
      if (thrown instanceof Error)
        return flat("e", stringify({ name: thrown.name, message: thrown.message, stack: thrown.stack, kind: thrown.evalloomKind }));
      return flat("e", stringify({ message: typeof thrown === "object" ? stringify(thrown) : String(thrown) }));
    } catch {
      return 'e{"message":"what it threw cannot be shown"}';
    }
  }
  function evalloom_result(value) {
    if (state.needed.length) return flat("n", stringify(state.needed));
    if (typeof value === "boolean") return "v" + value;
    if (value === undefined) return "u";
    let refused = "";
    try {
      const text = stringify(value, (key, part) => {
        const type = typeof part;
        if (type === "function" || type === "symbol" || type === "bigint" || (type === "number" && part - part !== 0))
          refused ||= (key && key + ": ") + (type === "number" ? String(part) : "a " + type);
        return type === "bigint" ? 0 : part;
      });
      return refused ? flat("r", refused) : text === undefined ? "u" : flat("v", text);
    } catch (error) {
      return error instanceof TypeError && error.message.startsWith("circular") ? "ran object that contains itself"
        // What a full stack throws inside the engine.
        : error === null ? "ran object that is nested too deeply" : evalloom_failure(error);
    }
  }
  return function evalloom_step(command, text) {
    if (command === "run") {
      answer = "";
      try {
        const request = (state.request = parse(text)), { values, names } = request;
        for (const part of request.parts) evaluate(part)(state);
        let code = state.kept, first;
        if (code);
        else if (request.file) code = state.exported(request.file, request.function);
        else for (const body of request.bodies) {
          try { code = evaluate("(function (" + names + ") {" + body + "\n})"); break; }
          catch (error) { first ??= error; }
        }
        if (!code) throw first;
        if (request.frozen) { evaluate(request.frozen)(); state.kept = code; }
        let value = code(...values);
        // Inline code may be a function instead of the body of one.
        if (!request.file && typeof value === "function") value = value(...values);
        if (value === null || typeof value !== "object" || typeof value.then !== "function") return evalloom_result(value);
        Promise.resolve(value).then(
          (settled) => { answer = evalloom_result(settled); },
          (error) => { answer = evalloom_failure(error); });
        return "p";
      } catch (error) {
        return evalloom_failure(error);
      }
    }
    if (answer) return answer;
    if (state.needed.length) return flat("n", stringify(state.needed));
    if (!state.timers.length) return "w";
    try { state.tick(); } catch (error) { return evalloom_failure(error); }
    return "p";
  };
})()
