"""How reports look: the HTML kit, charts, and Markdown."""
