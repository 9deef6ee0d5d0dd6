"""One concrete job out of spec, recipe and catalog, each value with its origin."""
