"""Parallelism, applied to a plain model from outside: one concept a file."""
