"""A real Slurm on this machine: started in seconds, removed without a trace."""
