// A link to a line that is on another page of the file leads there.
const lines = document.querySelector("[data-lines]");
const show = () => {
  const number = /^#L(\d+)$/.exec(location.hash)?.[1];
  if (!lines || !number || document.getElementById(`L${number}`)) return;
  const url = new URL(lines.dataset.lines, location.href);
  if (new URLSearchParams(location.search).get("line") === number) return;
  url.searchParams.set("line", number);
  url.hash = `L${number}`;
  location.replace(url);
};
show();
addEventListener("hashchange", show);
