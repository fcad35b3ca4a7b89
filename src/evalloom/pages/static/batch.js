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
