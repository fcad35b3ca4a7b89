// Makes the built-in objects of a context unchangeable, so that it can be used for several calls of the same code.
(function () {
  "use strict";
  const { getPrototypeOf, freeze, defineProperty, getOwnPropertyDescriptor } = Object, { ownKeys } = Reflect, seen = new Set();
  function evalloom_freeze(value) {
    if ((typeof value !== "object" && typeof value !== "function") || value === null || seen.has(value)) return;
    seen.add(value);
    evalloom_freeze(getPrototypeOf(value));
    for (const key of ownKeys(value)) {
      const property = getOwnPropertyDescriptor(value, key);
      evalloom_freeze(property.value);
      evalloom_freeze(property.get);
      evalloom_freeze(property.set);
    }
    freeze(value);
  }
  const functions = [function () {}, async function () {}, function* () {}, async function* () {}];
  // Code that is made from text could declare global names, which live beside the global object.
  for (const one of functions) defineProperty(getPrototypeOf(one), "constructor", { value: undefined });
  delete globalThis.eval;
  delete globalThis.Function;
  // Objects that no global name leads to.
  for (const one of functions) evalloom_freeze(one.prototype);
  const iterators = [[].values(), ""[Symbol.iterator](), new Map().keys(), new Set().keys(), "".matchAll(/x/g), functions[2](), functions[3]()];
  for (const one of iterators) evalloom_freeze(getPrototypeOf(one));
  const more = [[].values().map((part) => part), Iterator.from({ next() {} }), Object(1n), Object(Symbol())];
  for (const one of more) evalloom_freeze(getPrototypeOf(one));
  for (const one of functions) evalloom_freeze(getPrototypeOf(one));
  evalloom_freeze(globalThis);
})
