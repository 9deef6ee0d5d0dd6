#!/bin/sh
# Slurm asks for nodes. It starts this program with signals blocked, which a slurmd would inherit and hang on, so
# the request goes to the cluster's supervisor instead.
echo "resume $1" > "$(dirname "$0")/../run/power"
