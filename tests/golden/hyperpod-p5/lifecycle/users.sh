#!/bin/bash
# The accounts of the spec, under the same numbers on every node, with homes on shared storage, and who may sign in with
# which key. Runs as root on every node.
set -euo pipefail
shopt -s inherit_errexit

# shellcheck source=/dev/null
. /etc/trainwright/node

# account NAME NUMBER HOME: a user and the group of the same name. Files on shared storage belong to numbers, so an account of
# the image that has others must not stand in for it.
account() {
  getent group "$1" > /dev/null || groupadd --gid "$2" "$1"
  getent passwd "$1" > /dev/null || useradd --uid "$2" --gid "$1" --home-dir "$3" --no-create-home --shell /bin/bash "$1"
  if [ "$(id -u "$1"):$(id -g "$1")" != "$2:$2" ]; then
    echo "error: the user $1 has uid $(id -u "$1") and gid $(id -g "$1") on this node; the spec gives both the number $2:" \
      "use another name, or an image without this account" >&2
    return 1
  fi
}

# home NAME: the user's home, filled once. Several nodes do this at the same time on a shared folder.
home() {
  local folder
  folder=$(getent passwd "$1" | cut -d: -f6)
  if [ ! -d "$folder" ]; then
    install -d -m 0755 "$(dirname "$folder")"
    install -d -m 0750 -o "$1" -g "$1" "$folder"
    cp -rn /etc/skel/. "$folder/" || true
    chown -R "$1:" "$folder"
  fi
}

# key NAME LINE: a public key that may sign in as the user.
key() {
  local folder
  folder=$(getent passwd "$1" | cut -d: -f6)/.ssh
  install -d -m 0700 -o "$1" -g "$(id -gn "$1")" "$folder"
  if ! grep -qxF "$2" "$folder/authorized_keys" 2> /dev/null; then
    echo "$2" >> "$folder/authorized_keys"
    chown "$1:" "$folder/authorized_keys"
    chmod 0600 "$folder/authorized_keys"
  fi
}

home "${cfn_cluster_user:?}" # a shared /home hides that of the image

account alice 5001 /home/alice
home alice

account bob 5002 /home/bob
home bob

# The key pair of the spec; HyperPod puts none on its nodes.
if [ "${cfn_node_type:?}" = HeadNode ]; then
  public=$(aws ec2 describe-key-pairs --region "${cfn_region:?}" --key-names my-key --include-public-key \
    --query 'KeyPairs[0].PublicKey' --output text)
  key "$cfn_cluster_user" "$public"
fi
