#!/bin/bash
# Makes the folder of Slurm's job completion log: the only record of finished jobs on a cluster without an accounting
# database. Runs as root on the head node before Slurm is configured; its controller does not start without the folder.
set -euo pipefail

folder=/var/lib/trainwright/slurm
if id slurm > /dev/null 2>&1; then
  install -d -m 0755 /var/lib/trainwright
  install -d -m 0755 -o slurm -g slurm "$folder"
else
  install -d -m 1777 "$folder"
fi
