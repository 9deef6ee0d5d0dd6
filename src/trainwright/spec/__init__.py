"""What the user writes: typed models, loading with positions, defaults."""
