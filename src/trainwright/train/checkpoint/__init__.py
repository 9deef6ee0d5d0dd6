"""Checkpoints: written in the background, visible only when complete, loadable under any parallel plan."""
