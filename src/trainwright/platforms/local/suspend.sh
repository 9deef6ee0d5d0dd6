#!/bin/sh
# Slurm has no more work for these nodes; the supervisor takes them down.
echo "suspend $1" > "$(dirname "$0")/../run/power"
