"""How a cluster is made: one folder a platform."""
