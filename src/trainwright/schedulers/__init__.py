"""How a job is run: one file per scheduler."""
