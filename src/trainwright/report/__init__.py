"""Presentation: terminal tables and pictures."""
