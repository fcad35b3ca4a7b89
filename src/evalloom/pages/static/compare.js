// Scrolls two outputs together, by the share that is above: they may differ in length.

for (const pair of document.querySelectorAll("[data-scroll-together]")) {
  const panes = [...pair.querySelectorAll(".whole-output")];
  let leading = null;
  for (const pane of panes) {
    // The pane under the pointer or with the focus leads; the scrolling of the other is a consequence.
    for (const name of ["pointerenter", "focusin", "wheel", "touchstart"])
      pane.addEventListener(name, () => (leading = pane), { passive: true });
    pane.addEventListener("scroll", () => {
      if (leading !== null && leading !== pane) return;
      const share = pane.scrollTop / Math.max(1, pane.scrollHeight - pane.clientHeight);
      for (const other of panes)
        if (other !== pane) other.scrollTop = share * (other.scrollHeight - other.clientHeight);
    });
  }
}
