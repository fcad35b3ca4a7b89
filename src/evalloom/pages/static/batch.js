// A running batch: rows that are added do not move the page; a link says how many there are. An empty page shows the first.

const link = document.querySelector("[data-new]");
if (link) {
  const shown = Number(link.dataset.new);
  document.addEventListener("evalloom:progress", (event) => {
    const added = event.detail.progress.done - shown;
    if (shown === 0 && added > 0 && !document.activeElement?.matches("input, textarea, select")) location.reload();
    link.hidden = added <= 0;
    link.textContent = link.dataset.text.replace("%n", added.toLocaleString("en"));
  });
}

// The headline counts as the progress does. Its rate stays that of the rows below, and says so.
const count = document.querySelector("[data-live-count]");
if (count) {
  document.addEventListener("evalloom:progress", ({ detail: { progress } }) => {
    if (!progress.done) return;
    const values = { "%passed": progress.counts.passed ?? 0, "%total": progress.done };
    const text = count.dataset.text.replace(/%passed|%total/g, (name) => values[name].toLocaleString("en"));
    if (count.textContent !== text) count.textContent = text;
  });
}
