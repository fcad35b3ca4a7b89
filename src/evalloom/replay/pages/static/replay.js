// Reads a chosen file into the text field of its form: pages send text, not files.
for (const label of document.querySelectorAll("[data-reads]")) {
  label.hidden = false;
  const input = label.querySelector("input[type=file]");
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    const form = input.form;
    form.elements[label.dataset.reads].value = await file.text();
    if (!form.elements.name.value) form.elements.name.value = file.name.replace(/\.json$/, "");
  });
}
