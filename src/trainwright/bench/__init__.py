"""Measurements, each judged against its physical ceiling."""
