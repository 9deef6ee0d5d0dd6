"""Checkpoints that are written beside training, become visible only when whole, and load under any parallel plan."""
