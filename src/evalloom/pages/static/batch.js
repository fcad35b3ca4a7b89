// A running batch: rows that are added do not move the page; a link says how many there are.

const link = document.querySelector("[data-new]");
if (link) {
  const shown = Number(link.dataset.new);
  document.addEventListener("evalloom:progress", (event) => {
    const added = event.detail.progress.done - shown;
    link.hidden = added <= 0;
    link.textContent = link.dataset.text.replace("%n", added.toLocaleString("en"));
  });
}
