#!/bin/sh
# After a job, on each of its nodes: end what the job left running (a daemon it started, a child that outlived it).
# Slurm follows a job's process tree; a process that left the tree still carries the job's number in its environment.
if [ -n "${SLURM_JOB_ID:-}" ]; then
  # Start over without the job's number, or this program would find itself.
  exec env -i PATH="/usr/bin:/bin" job="$SLURM_JOB_ID" conf="$SLURM_CONF" node="$SLURMD_NODENAME" sh "$0"
fi
# The variables below come from the line above.
# shellcheck disable=SC2154
grep -slzxF "SLURM_JOB_ID=$job" /proc/[0-9]*/environ |
  xargs -r grep -slzxF "SLURM_CONF=$conf" |
  xargs -r grep -slzxF "SLURMD_NODENAME=$node" |
  while IFS=/ read -r _ _ pid _; do kill -KILL "$pid" 2>/dev/null; done
exit 0
