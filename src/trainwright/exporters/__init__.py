"""Prometheus exporters that run on cluster nodes."""
