#!/bin/sh
# Write constraints.txt from what .venv holds now. Run it after adding or upgrading a package, then run the tests.
set -eu
cd "$(dirname "$0")/.."
{
  echo "# Pins of everything the demo, the tests and the docs install: a green run today is green next month."
  echo "# Made by: tools/pin.sh (pip freeze of .venv)."
  .venv/bin/python -m pip list --format freeze --exclude-editable --disable-pip-version-check 2>/dev/null |
    sed 's/+cpu$//' | sort -fu
} >constraints.txt
