// What every page can do with a script: keyboard, copying, live progress. Without it, all pages can be read and used.

const body = document.body;
const toast = document.getElementById("toast");

export function say(text, seconds = 2) {
  toast.textContent = text;
  clearTimeout(say.timer);
  if (seconds) say.timer = setTimeout(() => (toast.textContent = ""), seconds * 1000);
}

// Does what the first look at a page does not need, so that it does not wait for it.
function afterFirstPaint(act) {
  new PerformanceObserver((paints, observer) => {
    if (!paints.getEntriesByName("first-contentful-paint").length) return;
    observer.disconnect();
    act();
  }).observe({ type: "paint", buffered: true });
}

async function copy(text) {
  await navigator.clipboard.writeText(text);
  say(toast.dataset.copied);
}

// -- what needs a script is hidden until there is one ---------------------------------------------------

// The style sheet shows these without being told, except in old browsers.
if (!matchMedia("(scripting)").matches)
  for (const element of document.querySelectorAll("[data-copy], [data-copy-link], [data-help]")) element.hidden = false;
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy !== undefined) copy(button.dataset.copy);
  if (button?.dataset.copyLink !== undefined) copy(location.href);
  if (button?.dataset.help !== undefined) document.getElementById("help").showModal();
});
document.addEventListener("change", (event) => {
  if (event.target.dataset.submit !== undefined) event.target.form.requestSubmit();
});

// Compare: two boxes, and the button is on when both are ticked.
for (const form of document.querySelectorAll("[data-choose]")) {
  const most = Number(form.dataset.choose);
  const button = form.querySelector("[data-choose-button]");
  const update = () => {
    const ticked = form.querySelectorAll("input[type=checkbox]:checked");
    for (const box of form.querySelectorAll("input[type=checkbox]")) box.disabled = !box.checked && ticked.length >= most;
    if (button) button.disabled = ticked.length !== most;
  };
  form.addEventListener("change", update);
  update();
}

// -- times: how long ago, kept up to date; the title has the time itself --------------------------------

function ago(text) {
  const seconds = (Date.parse(text) - Date.now()) / 1000;
  const format = new Intl.RelativeTimeFormat(document.documentElement.lang, { numeric: "auto", style: "short" });
  for (const [unit, size] of [["day", 86400], ["hour", 3600], ["minute", 60]])
    if (Math.abs(seconds) >= size) return format.format(Math.round(seconds / size), unit);
  return format.format(Math.round(seconds), "second");
}
function updateTimes() {
  for (const time of document.querySelectorAll("time[datetime]")) {
    const then = Date.parse(time.dateTime);
    if (!Number.isNaN(then) && Date.now() - then < 30 * 86400000) time.textContent = ago(time.dateTime);
  }
}
// The browser takes 10 ms to load its words for times.
afterFirstPaint(updateTimes);
setInterval(updateTimes, 30000);

// -- keyboard: j k Enter move through rows, / searches, ? helps; nothing while typing ----------------------

const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
let current = -1;

function move(by) {
  const all = rows();
  if (!all.length) return follow(by > 0 ? "next" : "prev");
  all[current]?.classList.remove("is-current");
  current = Math.min(Math.max(current + by, 0), all.length - 1);
  all[current].classList.add("is-current");
  all[current].scrollIntoView({ block: "nearest" });
  all[current].querySelector("[data-open]")?.focus({ preventScroll: true });
}
function follow(name) {
  document.querySelector(`[data-key="${name}"], a[rel="${name}"]`)?.click();
}
const keys = {
  "/": () => document.querySelector("[data-search]")?.focus(),
  "?": () => document.getElementById("help").showModal(),
  j: () => move(1),
  k: () => move(-1),
  Enter: () => rows()[current]?.querySelector("[data-open]")?.click(),
  n: () => follow("next"),
  p: () => follow("prev"),
  f: () => follow("failed"),
  c: () => copy(location.href),
};
let before = "";
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog[open], [contenteditable]");
  if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing) {
    if (event.key === "Escape" && !event.target.closest("dialog")) event.target.blur();
    return;
  }
  if (before === "g" && event.key === "b") location.href = document.querySelector(".brand").href;
  else if (event.key === "Enter" && event.target.closest("a, button, summary")) return;
  else if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
  before = event.key;
});

// -- live progress: every event has the whole state; the browser connects again by itself ------------------

for (const element of document.querySelectorAll("[data-reload]"))
  setTimeout(() => location.reload(), 1000 * Number(element.dataset.reload));

if (body.dataset.live) afterFirstPaint(watch);
function watch() {
  const lang = body.dataset.lang;
  const source = new EventSource(`${body.dataset.live}?lang=${lang}`);
  const seen = new Set([...document.querySelectorAll("[data-progress]")].map((element) => element.dataset.progress));
  let lost = false;
  source.addEventListener("progress", (event) => {
    if (lost) say("", 0);
    lost = false;
    const { batches } = JSON.parse(event.data);
    for (const [id, state] of Object.entries(batches)) {
      for (const element of document.querySelectorAll("[data-progress]"))
        if (element.dataset.progress === id) element.innerHTML = state.html;
      document.dispatchEvent(new CustomEvent("evalloom:progress", { detail: { id, ...state } }));
    }
    // A batch that began or ended changes the page: it is read again, unless somebody is typing.
    const running = new Set(Object.entries(batches).filter(([, state]) => state.state === "running").map(([id]) => id));
    const changed = [...seen].some((id) => !running.has(id)) || [...running].some((id) => !seen.has(id));
    if (changed && !document.activeElement?.matches("input, textarea, select") && !document.querySelector("dialog[open]")) {
      source.close();
      location.reload();
    }
  });
  source.addEventListener("error", () => {
    lost = true;
    say(toast.dataset.lost, 0);
  });
  addEventListener("pagehide", () => source.close());
}
