// require, for the files that the request brings; a file that is missing is asked for, and the code runs again.
(function (state) {
  "use strict";
  const { evaluate, needed, request } = state, { parse } = JSON, modules = { __proto__: null };
  function evalloom_error(message) {
    const error = new Error(message);
    error.evalloomKind = "module";
    return error;
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
    return function evalloom_require(name) {
      name = String(name);
      if (!/^\.{1,2}(\/|$)/.test(name)) throw evalloom_error("!" + name);
      const path = evalloom_join(folder, name), file = request.files[path];
      if (file === undefined) { needed.push(path); throw evalloom_error(name + " is being read"); }
      if (file.error) throw evalloom_error(file.error);
      return evalloom_load(file).exports;
    };
  }
  function evalloom_load(file) {
    if (modules[file.id]) return modules[file.id];
    const module = modules[file.id] = { exports: {}, id: file.id, filename: "/" + file.id, loaded: false, children: [], paths: [] };
    try {
      if (file.json) module.exports = parse(file.text);
      else {
        const cut = file.id.lastIndexOf("/"), folder = cut < 0 ? "" : file.id.slice(0, cut);
        // The empty lines tell the files apart in stack traces, which have line numbers only.
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
  state.exported = function evalloom_exported(file, name) {
    const found = evalloom_load(file).exports, byDefault = typeof found === "function" ? found : found?.default;
    if (name) {
      const wanted = found?.[name] ?? found?.default?.[name];
      if (typeof wanted === "function") return wanted;
      throw evalloom_error(file.id + " exports no function " + name);
    }
    if (typeof byDefault === "function") return byDefault;
    // A file may export what it computes: tests, or a prompt.
    if (byDefault !== undefined) return () => byDefault;
    const keys = Object.keys(found ?? {}), names = keys.filter((key) => typeof found[key] === "function");
    if (names.length) throw evalloom_error(`${file.id} exports ${names.join(", ")} and no default; name one as file://${file.id}:${names[0]}`);
    if (found !== null && typeof found === "object" && !Array.isArray(found) && !keys.length)
      throw evalloom_error(`${file.id} exports nothing; write module.exports = (output, context) => …`);
    return () => found;
  };
  globalThis.require = evalloom_require_from(request.home);
})
