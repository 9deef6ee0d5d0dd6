"""Small fused kernels: Triton on a GPU, the same arithmetic in plain torch everywhere else."""
