"""A small ParallelCluster file without a mistake, for tests that change one part of it."""

from __future__ import annotations

HEAD, NODES = "subnet-0a1b2c3d4e5f67890", "subnet-0a1b2c3d4e5f67891"
CLUSTER = f"""Region: us-east-2
Image:
  Os: alinux2023
HeadNode:
  InstanceType: m5.2xlarge
  Networking:
    SubnetId: {HEAD}
  Ssh:
    KeyName: key
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: one
      Networking:
        SubnetIds: [{NODES}]
      ComputeResources:
        - Name: c5
          InstanceType: c5.large
          MinCount: 0
          MaxCount: 4
"""
