#!/bin/sh
# System packages for the demo and the tests: a real Slurm, an ssh server, network tools. Installed where this is root on
# Debian or Ubuntu; elsewhere it says what is missing, and the parts that need it are skipped with that reason. Further
# packages are named as arguments.
set -eu

packages="slurmctld slurmd slurm-client munge tini iproute2 openssh-server openssh-client $*"
missing=""
for package in $packages; do
  dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "not installed:$missing (needs root and apt); what needs them is skipped" >&2
  exit 0
fi
echo "installing system packages:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
# shellcheck disable=SC2086  # the list is meant to split into words
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
  tail -n 5 "$log" >&2
  echo "the installation failed; what needs these packages is skipped" >&2
fi
rm -f "$log"
