#!/bin/bash
# Sets the Lustre client up for EFA with AWS's own package, before the file system is mounted: the CPU partitions of Lustre's
# modules are fixed when they are loaded, and without them only a few of the cards are used, with no error. A node on which
# it does not work reaches the file system over TCP, and says so. Runs as root when the node starts.
set -uo pipefail

state=/var/lib/trainwright
install -d -m 0755 "$state"
tcp() {
  echo "warning: Lustre over TCP and not EFA: $1" >&2
  echo "$1" > "$state/lustre-efa.failed"
  exit 0
}
rm -f "$state/lustre-efa.failed"

compgen -G '/sys/class/infiniband/*' > /dev/null || tcp "the node shows no EFA device"
modinfo kefalnd > /dev/null 2>&1 || tcp "the Lustre client of this image has no EFA module (kefalnd)"
# Modules that are loaded already would keep their partitions.
if grep -q '^libcfs ' /proc/modules; then lustre_rmmod || tcp "Lustre's modules are in use"; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
curl -fsSL --retry 5 -o "$work/client.zip" https://docs.aws.amazon.com/fsx/latest/LustreGuide/samples/configure-efa-fsx-lustre-client.zip || tcp "AWS's client package cannot be fetched"
echo ed421b0cd251f4dae78cc727f857937de345d7c67700cc240db5f6af7ba6ef49 " $work/client.zip" | sha256sum --check --status ||
  tcp "AWS's client package is not that of 2026-08-20: read the new one, then update the checksum in pins.toml"
python3 -m zipfile -e "$work/client.zip" "$work"
chmod -R u+rx "$work"
# On a first boot its exit status is that of a systemd job that was replaced: the service's state tells.
(cd "$work/configure-efa-fsx-lustre-client" && bash ./setup.sh) || true
systemctl is-active --quiet configure-efa-fsx-lustre-client.service || tcp "AWS's set-up of the client failed"
cards=$(lnetctl net show --net efa | grep -c 'status: up')
[ "$cards" -gt 0 ] || tcp "no EFA interface of Lustre is up"
echo "Lustre uses $cards EFA interfaces" >&2
