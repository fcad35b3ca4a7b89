// HOP views: follows a hoplet while it runs, counts the percent of a batch, and checks JSON before it is sent.

const conversation = document.querySelector("[data-follow]");
if (conversation) {
  const step = conversation.querySelector("[data-step]");
  let stopped = false;
  addEventListener("pagehide", () => (stopped = true));
  const look = async () => {
    if (stopped) return;
    try {
      const { conversation: state } = await (await fetch(conversation.dataset.follow)).json();
      if (!state?.is_running) return location.reload();
      const last = state.turns.at(-1).steps.at(-1);
      const text = last ? `${last.op}: ${last.task}`.slice(0, 120) : "";
      if (text && step.textContent !== text) step.textContent = text;
    } catch {
      // The server restarts or is gone; the next look tells.
    }
    setTimeout(look, 800);
  };
  setTimeout(look, 800);
}

document.addEventListener("evalloom:progress", ({ detail: { id, progress } }) => {
  const percent = (share) => new Intl.NumberFormat(document.documentElement.lang, { style: "percent" }).format(share);
  for (const element of document.querySelectorAll("[data-percent]"))
    if (element.dataset.percent === id && progress.planned) element.textContent = percent(progress.done / progress.planned);
});

for (const field of document.querySelectorAll("textarea[data-json]"))
  field.addEventListener("input", () => {
    let message = "";
    try {
      const value = field.value.trim() ? JSON.parse(field.value) : null;
      if (value !== null && Array.isArray(value) !== (field.dataset.json === "array")) message = field.placeholder;
    } catch (error) {
      message = error.message;
    }
    field.setCustomValidity(message);
  });
