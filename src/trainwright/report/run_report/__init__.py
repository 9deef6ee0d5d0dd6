"""The report of a run: collected as plain data from its folder, then rendered as a page, as Markdown or as JSON."""
