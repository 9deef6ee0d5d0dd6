#!/bin/sh
# Write the pins of the runtime that a plan ships (catalog/data/runtime): run it after a change of `packages` or `python` in
# runtime.toml there. Needs uv. Versions that constraints.txt pins are kept: what is tested here is what runs there.
set -eu
cd "$(dirname "$0")/.."
folder=src/trainwright/catalog/data/runtime
value() { sed -n "s/^$1 = \"\([^\"]*\)\".*/\1/p" "$folder/runtime.toml"; }
python=$(value python)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/^packages/,/^]/p' "$folder/runtime.toml" | grep -o '"[^"]*"' | tr -d '"' >"$work/in"
grep '==' constraints.txt >"$work/constraints"
lock() { # lock PLATFORM IN OUT: every package with the hashes of its files
  uv pip compile --quiet --generate-hashes --no-annotate --no-header --constraint "$work/constraints" \
    --python-platform "$1" --python-version "${python%.*}" "$2" -o "$3"
}
lock x86_64-manylinux_2_28 "$work/in" "$work/x86_64"
lock aarch64-manylinux_2_28 "$work/in" "$work/aarch64"
cmp "$work/x86_64" "$work/aarch64" # one file serves both: no package is for one of them alone
echo "uv==$(value uv)" >"$work/uv"
lock x86_64-manylinux_2_28 "$work/uv" "$work/uv.txt"
for name in requirements.txt:x86_64 uv.txt:uv.txt; do
  { echo "# Made by tools/pin_runtime.sh from runtime.toml."; cat "$work/${name#*:}"; } >"$folder/${name%%:*}"
done
