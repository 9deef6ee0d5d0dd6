"""Containers and machine images from one pinned version set."""
