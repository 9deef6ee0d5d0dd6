#!/bin/sh
# One node of a local cluster: waits for its cable, takes its name and address, then becomes slurmd.
# usage: node.sh NAME ADDRESS HOSTS [FOLDER MOUNT]...
set -eu
name=$1 address=$2 hosts=$3
shift 3
hostname "$name"
mount --bind "$hosts" /etc/hosts
while [ $# -gt 1 ]; do
  mount --bind "$1" "$2"
  shift 2
done
ip link set lo up
ip addr del 127.0.0.1/8 dev lo
ip addr add 127.0.0.1/32 dev lo
until [ -e /proc/sys/net/ipv4/conf/eth0 ]; do sleep 0.02; done
for where in all eth0; do echo 1 > "/proc/sys/net/ipv4/conf/$where/route_localnet"; done
ip addr add "$address/16" dev eth0
ip link set eth0 up
# -b says the node has just booted, which Slurm wants to hear from a node it powered up.
exec slurmd -D -b -N "$name"
