"""The files that prompt-eval writes: the CSV, the workbook, and the report as HTML and Markdown."""
