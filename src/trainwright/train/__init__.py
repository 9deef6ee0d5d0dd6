"""The trainer: what each rank runs. Needs Python and torch, nothing else."""
