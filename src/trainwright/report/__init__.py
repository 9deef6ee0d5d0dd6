"""The HTML page and the live view of a run."""
