// The command line follows the form: the server makes it, as it does without a script.
const form = document.querySelector("[data-run-form]");
const summary = form.querySelector("[data-run-summary]");
form.querySelector("[data-no-script]").hidden = true;
let asked = 0;
let timer;

async function update() {
  const own = ++asked;
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  const response = await fetch(`${form.action.split("?")[0]}?${query}`, { headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const made = page.querySelector("[data-run-summary]");
  if (own !== asked || !made) return;
  summary.replaceChildren(...made.childNodes);
  for (const button of summary.querySelectorAll("[data-copy]")) button.hidden = false;
  history.replaceState(null, "", `?${query}`);
}
form.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(update, 150);
});
