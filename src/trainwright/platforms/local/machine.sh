#!/bin/sh
# What the head and every node of a local cluster begin with; they source it with their own arguments.
# usage: . machine.sh, with NAME ADDRESS HOSTS [FOLDER MOUNT]... as $1, $2...
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

# set_address DEVICE: give the machine's address to a network device.
set_address() {
  for where in all "$1"; do echo 1 > "/proc/sys/net/ipv4/conf/$where/route_localnet"; done
  ip addr add "$address/16" dev "$1"
  ip link set "$1" up
}
