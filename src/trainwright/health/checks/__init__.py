"""The checks, by family: each one small function under `@check`."""
