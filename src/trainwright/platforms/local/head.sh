#!/bin/sh
# The head of a local cluster: a network with a bridge that connects the nodes, and nothing that leads outside.
# usage: head.sh NAME ADDRESS HOSTS [FOLDER MOUNT]...
set -eu
. "${0%/*}/machine.sh"
echo 1 > /proc/sys/net/ipv4/conf/default/route_localnet
ip link add br0 type bridge
set_address br0
# The network lives as long as this process does.
exec sleep infinity
