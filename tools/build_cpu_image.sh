#!/usr/bin/env bash
# Build the CPU form of our trainer's image for real, without a daemon and without a registry, and train in it: a Debian
# root file system is the base, buildah runs the Dockerfile that `trainwright image container` writes.
#
#   tools/build_cpu_image.sh [ROOTFS]     a root file system that debootstrap made; else one is made
#
# Needs root, buildah and debootstrap (Debian's), and a pip that finds torch for CPUs: the wheels of $PIP_FIND_LINKS are used.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
container=""
images() { buildah --root "$work/store" --runroot "$work/run" "$@"; }
trap '[ -z "$container" ] || images rm "$container" >/dev/null; rm -rf "$work"' EXIT
export BUILDAH_ISOLATION=chroot PYTHONPATH=$here/src

rootfs=${1:-$work/rootfs}
mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources)
[ -d "$rootfs" ] || debootstrap --variant=minbase bookworm "$rootfs" "$mirror" >&2
container=$(images from scratch)
tar -C "$rootfs" --one-file-system -cf "$work/base.tar" .
images add --quiet "$container" "$work/base.tar" / >/dev/null
images commit --quiet "$container" localhost/base:1 >/dev/null
images rm "$container" >/dev/null
container=""

"$here/.venv/bin/python" -m trainwright image container --out "$work/image"
wheels=${PIP_FIND_LINKS:-/nonexistent}
options=(--volume /etc/ssl/certs:/host-certs:ro)
printf '[global]\ncert = /host-certs/ca-certificates.crt\n' >"$work/pip.conf"
if [ -d "$wheels" ]; then
  options+=(--volume "$wheels:/wheels:ro")
  echo 'find-links = /wheels' >>"$work/pip.conf"
fi
images bud --quiet --layers=false --format docker --target cpu --secret "id=pip,src=$work/pip.conf" "${options[@]}" \
  --build-arg BASE=localhost/base:1 --build-arg REQUIREMENTS=requirements-cpu.txt --tag localhost/trainer:cpu "$work/image"
container=$(images from localhost/trainer:cpu)
# shellcheck disable=SC2016  # expanded in the container
images run "$container" -- sh -c 'test "$(id -u)" = 10001 && python -m trainwright.train --model llama3.2-1b-debug \
  --data builtin:stdlib --sequence 64 --steps 3 --folder "$(mktemp -d)"'
