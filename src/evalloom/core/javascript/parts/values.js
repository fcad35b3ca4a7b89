// structuredClone, TextEncoder and TextDecoder.
(function () {
  "use strict";
  function refuse(value) {
    const error = new Error(`${typeof value === "symbol" ? "a symbol" : String(value)} could not be cloned`);
    error.name = "DataCloneError";
    throw error;
  }
  globalThis.structuredClone = function (whole) {
    const copies = new Map();
    function copy(value) {
      if (typeof value === "function" || typeof value === "symbol") refuse(value);
      if (value === null || typeof value !== "object") return value;
      if (copies.has(value)) return copies.get(value);
      const keep = (made) => (copies.set(value, made), made);
      if (value instanceof Date) return keep(new Date(value.getTime()));
      if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
      if (value instanceof ArrayBuffer) return keep(value.slice(0));
      if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return keep(value.slice());
      if (value instanceof Map) {
        const made = keep(new Map());
        for (const [key, part] of value) made.set(copy(key), copy(part));
        return made;
      }
      if (value instanceof Set) {
        const made = keep(new Set());
        for (const part of value) made.add(copy(part));
        return made;
      }
      if (value instanceof Promise || value instanceof WeakMap || value instanceof WeakSet) refuse(value);
      if (value instanceof Error) {
        const made = keep(new Error(value.message));
        made.name = value.name;
        return made;
      }
      const made = keep(Array.isArray(value) ? new Array(value.length) : {});
      for (const key of Object.keys(value)) made[key] = copy(value[key]);
      return made;
    }
    return copy(whole);
  };
  globalThis.TextEncoder = class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") {
      const escaped = encodeURIComponent(String(text).toWellFormed()), bytes = [];
      for (let at = 0; at < escaped.length; at++) {
        if (escaped[at] === "%") { bytes.push(parseInt(escaped.slice(at + 1, at + 3), 16)); at += 2; }
        else bytes.push(escaped.charCodeAt(at));
      }
      return new Uint8Array(bytes);
    }
  };
  globalThis.TextDecoder = class TextDecoder {
    constructor(name = "utf-8") {
      if (!/^utf-?8$/i.test(name)) throw new RangeError(`TextDecoder: only utf-8 is known here, got ${name}`);
    }
    get encoding() { return "utf-8"; }
    decode(bytes = new Uint8Array()) {
      const view = bytes instanceof ArrayBuffer ? new Uint8Array(bytes) : bytes;
      let text = "", at = 0;
      while (at < view.length) {
        const first = view[at];
        const size = first < 0x80 ? 1 : first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
        try {
          if (!size) throw first;
          let escaped = "";
          for (let next = at; next < at + size; next++) escaped += "%" + (view[next] ?? 0).toString(16).padStart(2, "0");
          text += decodeURIComponent(escaped);
          at += size;
        } catch { text += "\ufffd"; at += 1; }
      }
      return text.startsWith("\ufeff") ? text.slice(1) : text;
    }
  };
})
