"""Clusters that somebody else made: reading what they are, and running jobs on them."""
