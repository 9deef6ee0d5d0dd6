"""The whole story for real, on the machine at hand, in about two minutes."""
