#!/bin/sh
# One node of a local cluster: waits for its network device, takes its name and address, then becomes slurmd.
# usage: node.sh NAME ADDRESS HOSTS [FOLDER MOUNT]...
set -eu
. "${0%/*}/machine.sh"
until [ -e /proc/sys/net/ipv4/conf/eth0 ]; do sleep 0.02; done
set_address eth0
# -b says the node has just booted, which Slurm wants to hear from a node it powered up.
exec slurmd -D -b -N "$name"
