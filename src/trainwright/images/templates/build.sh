#!/usr/bin/env bash
# Build {{ name | comment }}, push it to ECR, and import it as a squash file for enroot. Written by `trainwright image container`.
#
#   ./build.sh build     docker buildx, on any machine with Docker
{% if cpu %}
#   ./build.sh cpu       without GPU and network parts, for a laptop; PIP_CONF names an index with torch for CPUs
{% endif %}
#   ./build.sh push      to the account's ECR; a tag that is there is not pushed again
#   ./build.sh squash    on a cluster node with enroot: from ECR to the shared file system, one import at a time
#   ./build.sh           build and push
#
# A tag of a base image may be given to another image later. The digest that it has at the first build is kept in
# bases.lock beside this script, every build uses it, and the image has it as a label. Remove the file to take newer ones.
# REPOSITORY, REGION, SQUASH_FOLDER and PIP_CONF (a pip.conf with an index of your own) may be set in the environment.
set -euo pipefail

repository=${REPOSITORY:-{{ repository }}}
region=${REGION:-{{ region }}}
region=${region:-${AWS_REGION:-${AWS_DEFAULT_REGION:-}}}
squash_folder=${SQUASH_FOLDER:-{{ squash }}}
tag={{ tag }}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { printf '%s\n' "$*" >&2; }

registry() {
  [ -n "$region" ] || { say "no region: set REGION or AWS_REGION"; exit 2; }
  local account
  account=$(aws sts get-caller-identity --query Account --output text)
  printf '%s.dkr.ecr.%s.amazonaws.com' "$account" "$region"
}

# pinned IMAGE: the same image by its digest
pinned() {
  local digest
  if [[ $1 == *@sha256:* ]]; then
    printf '%s' "$1"
    return
  fi
  touch "$here/bases.lock"
  digest=$(awk -v image="$1" '$1 == image { print $2 }' "$here/bases.lock")
  if [ -z "$digest" ]; then
    digest=$(docker buildx imagetools inspect "$1" --format '{% raw %}{{.Manifest.Digest}}{% endraw %}')
    [[ $digest == sha256:* ]] || { say "the registry names no digest of $1"; exit 1; }
    printf '%s %s\n' "$1" "$digest" >>"$here/bases.lock"
  fi
  printf '%s@%s' "$1" "$digest"
}

# build TAG OPTION...
build() {
  local secret=() base
  [ -z "${PIP_CONF:-}" ] || secret=(--secret "id=pip,src=$PIP_CONF")
  base=$(pinned {{ base }})
  local bases=(--build-arg "BASE=$base" --label "org.opencontainers.image.base.digest=${base#*@}")
{% if compiled_in %}
  base=$(pinned {{ compiled_in }})
  bases+=(--build-arg "BUILD=$base" --label "trainwright.build.digest=${base#*@}")
{% endif %}
  # --provenance=false: enroot reads plain images, not the index that attestations are kept in.
  docker buildx build --load --platform linux/amd64 --provenance=false ${secret[@]+"${secret[@]}"} "${bases[@]}" "${@:2}" \
    --tag "$repository:$1" --file "$here/Dockerfile" "$here"
}

in_registry() {
  aws ecr describe-images --region "$region" --repository-name "$repository" --image-ids "imageTag=$tag" >/dev/null 2>&1
}

push() {
  local host
  host=$(registry)
  if ! aws ecr describe-repositories --region "$region" --repository-names "$repository" >/dev/null 2>&1; then
    aws ecr create-repository --region "$region" --repository-name "$repository" \
      --image-tag-mutability IMMUTABLE --image-scanning-configuration scanOnPush=true >/dev/null
    say "created the repository $repository"
  fi
  if in_registry; then
    say "$repository:$tag is in the registry already"
    return
  fi
  aws ecr get-login-password --region "$region" | docker login --username AWS --password-stdin "$host"
  docker tag "$repository:$tag" "$host/$repository:$tag"
  docker push "$host/$repository:$tag"
}

config="" part=""
remove_leftovers() {
  [ -z "$config" ] || rm -rf "$config"
  [ -z "$part" ] || rm -f "$part"
}

squash() {
  local host file
  mkdir -p "$squash_folder"
  file="$squash_folder/${repository//\//+}+$tag.sqsh"
  # The kernel releases the lock when this process ends, however it ends. A file system without locks is refused.
  exec 9>"$squash_folder/.import.lock"
  if ! flock --nonblock --conflict-exit-code 75 9; then
    say "another import runs in $squash_folder; waiting for it"
    flock 9 || { say "$squash_folder has no locks between nodes: mount Lustre with the option flock"; exit 1; }
  fi
  if [ -s "$file" ]; then
    say "$file is there already"
    printf '%s\n' "$file"
    return
  fi
  host=$(registry)
  trap remove_leftovers EXIT
  config=$(mktemp -d)
  part="$file.$$.part"
  # A token for 12 hours, readable by this user only and removed at the end; enroot takes it from this folder.
  (umask 077 && printf 'machine %s login AWS password %s\n' "$host" \
    "$(aws ecr get-login-password --region "$region")" >"$config/.credentials")
  ENROOT_CONFIG_PATH="$config" ENROOT_TRANSFER_RETRIES=3 \
    enroot import --output "$part" "docker://$host#$repository:$tag" >&2
  mv "$part" "$file"
  printf '%s\n' "$file"
}

case "${1:-all}" in
  build) build "$tag" ;;
{% if cpu %}
  cpu) build "$tag-cpu" --target cpu --build-arg REQUIREMENTS=requirements-cpu.txt ;;
{% endif %}
  push) push ;;
  squash) squash ;;
  all)
    build "$tag"
    push
    ;;
  *)
    sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
    exit 2
    ;;
esac
