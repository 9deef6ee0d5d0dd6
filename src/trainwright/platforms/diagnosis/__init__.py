"""Why a cluster did not come up: known causes as data, read out of stack events and logs of head and compute nodes."""
