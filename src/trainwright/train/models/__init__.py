"""Model code: plain single-device PyTorch, and the shapes of the published models."""
