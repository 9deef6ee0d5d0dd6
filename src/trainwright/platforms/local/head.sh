#!/bin/sh
# The head of a local cluster: a network with a bridge that the nodes plug into, and nothing that leads outside.
# usage: head.sh NAME ADDRESS HOSTS [FOLDER MOUNT]...
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
# The kernel gives all of 127/8 to lo; taking most of it back lets 127.77.x.y travel over the bridge.
ip addr del 127.0.0.1/8 dev lo
ip addr add 127.0.0.1/32 dev lo
ip link add br0 type bridge
for where in all default br0; do echo 1 > "/proc/sys/net/ipv4/conf/$where/route_localnet"; done
ip addr add "$address/16" dev br0
ip link set br0 up
# The network lives as long as this process does.
exec sleep infinity
