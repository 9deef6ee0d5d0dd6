"""The rules, by family; the engine that runs them; the readers of foreign files."""
