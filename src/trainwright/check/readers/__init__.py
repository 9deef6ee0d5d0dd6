"""Readers: each turns one kind of file into the model that rules look at."""
