"use strict";
(() => {
  const form = document.getElementById("filter");
  const cases = Array.from(document.querySelectorAll("details.case"));
  if (!form || !cases.length) return;
  const fields = {category: form.elements.category, show: form.elements.show, text: form.elements.text};
  const texts = new Map();
  const textOf = (one) => {
    if (!texts.has(one)) texts.set(one, one.textContent.toLowerCase());
    return texts.get(one);
  };
  const fits = (one, category, show, words) =>
    (!category || one.dataset.category === category) &&
    (!show || one.dataset.state.split(" ").includes(show)) &&
    words.every((word) => textOf(one).includes(word));
  const apply = () => {
    const words = fields.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const one of cases) {
      one.hidden = !fits(one, fields.category.value, fields.show.value, words);
      if (!one.hidden) shown += 1;
    }
    document.getElementById("count").textContent = `${shown} of ${cases.length} cases`;
    document.getElementById("none").hidden = shown > 0;
  };
  const remember = () => {
    const wanted = new URLSearchParams();
    for (const [name, field] of Object.entries(fields)) if (field.value) wanted.set(name, field.value);
    history.replaceState(null, "", "#" + (wanted.toString() || "cases"));
  };
  const set = (wanted) => {
    for (const [name, field] of Object.entries(fields)) field.value = wanted.get(name) || "";
    // A category that no case has leaves a choice empty, which would show nothing without saying why.
    for (const field of Object.values(fields)) if (field.selectedIndex === -1) field.value = "";
    apply();
  };
  const placeOf = (hash) => {
    try {
      return document.getElementById(decodeURIComponent(hash));
    } catch {
      return null; // "%zz" is no text
    }
  };
  const follow = () => {
    const hash = location.hash.slice(1);
    const place = placeOf(hash);
    if (hash.includes("=")) {
      set(new URLSearchParams(hash));
      document.getElementById("cases").scrollIntoView();
    } else if (place && place.matches("details.case")) {
      if (place.hidden) set(new URLSearchParams());
      place.open = true;
      place.scrollIntoView();
    }
  };
  form.hidden = false;
  form.addEventListener("input", () => { apply(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { apply(); remember(); }));
  window.addEventListener("hashchange", follow);
  const opened = new Set();
  window.addEventListener("beforeprint", () => {
    for (const one of cases) if (!one.hidden && !one.open) { one.open = true; opened.add(one); }
  });
  window.addEventListener("afterprint", () => { opened.forEach((one) => { one.open = false; }); opened.clear(); });
  apply();
  follow();
})();
