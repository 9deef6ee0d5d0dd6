"""Trainwright: describe, check, predict, build, run and prove a training cluster from one file."""

__version__ = "0.1.0"
