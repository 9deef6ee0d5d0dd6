#!/usr/bin/env bash
# Run by EC2 Image Builder on the build machine: apply the roles of {{ name | comment }} to it.
set -euo pipefail

work=$(mktemp -d)
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet {{ ansible }}
aws s3 cp {{ bucket }}/ansible.tar.gz - | tar -C "$work" -xzf -

# Image Builder makes the machine ready to be copied by itself.
"$work/venv/bin/ansible-playbook" --connection local --inventory localhost, --skip-tags finish \
  "$work/ansible/site.yml"

rm -rf "$work"
