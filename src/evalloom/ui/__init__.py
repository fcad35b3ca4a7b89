"""How things look: HTML that is safe to build, charts, and Markdown."""
