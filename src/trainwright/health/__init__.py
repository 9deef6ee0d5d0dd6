"""Node checks, with a verdict a scheduler can act on."""
