"""AWS ParallelCluster: a Slurm cluster on EC2, from one YAML file."""
