"""Containers and machine images, written from one version set."""
