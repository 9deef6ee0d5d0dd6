"""Turns files that people already have (sbatch scripts, Kubernetes manifests, cluster files) into a spec."""
