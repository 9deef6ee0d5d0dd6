"""What a training program in Python does: its ranks, data, steps and checkpoints, read from its syntax tree."""
