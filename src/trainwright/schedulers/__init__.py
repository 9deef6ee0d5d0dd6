"""How a job is run: one file a scheduler."""
