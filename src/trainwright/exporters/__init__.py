"""Node side: one process per node that gives Prometheus what the node, its network, its file systems, its scheduler and
our trainer know. Standard library only, so that it runs with the Python of any machine image (3.9 or later)."""
