#!/usr/bin/env bash
# Build a machine image: {{ title | comment }}, {{ os | comment }}, version set {{ set.name | comment }}. Written by `trainwright image machine`.
#
#   ./build.sh packer      with Packer and Ansible, from the newest base image
{% if pcluster %}
#   ./build.sh pcluster    with `pcluster build-image` {{ parallelcluster | comment }} and EC2 Image Builder: no build machine of your own
{% endif %}
#
# BUILD (a number that tells one build from another), REGION and SUBNET may be set in the environment.
set -euo pipefail

region=${REGION:-{{ region }}}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=${BUILD:-$(date -u +%Y%m%d%H%M)}

with_packer() {
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  python3 -m venv "$work/ansible"
  "$work/ansible/bin/pip" install --quiet {{ ansible }}
  # Packer 1.11 and later bring no plugins along.
  if packer plugins --help >/dev/null 2>&1; then
    packer plugins install github.com/hashicorp/amazon
    packer plugins install github.com/hashicorp/ansible
  fi
  PATH="$work/ansible/bin:$PATH" packer build -var "region=$region" -var "build=$build" \
    -var "subnet_id=${SUBNET:-}" "$here/image.pkr.hcl"
}
{% if pcluster %}

with_pcluster() {
{% if bucket %}
  tar -C "$here" -czf - ansible | aws s3 cp - {{ bucket }}/ansible.tar.gz
  aws s3 cp "$here/apply.sh" {{ bucket }}/apply.sh
{% endif %}
  pcluster build-image --region "$region" --image-id {{ name }}"-$build" --image-configuration "$here/build-image.yaml"
}
{% endif %}

case "${1:-}" in
  packer) with_packer ;;
{% if pcluster %}
  pcluster) with_pcluster ;;
{% endif %}
  *)
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
