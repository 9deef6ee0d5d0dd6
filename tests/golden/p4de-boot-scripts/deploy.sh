#!/bin/bash
# Deploys this plan, and nothing else: its stacks in order, what its nodes fetch, then the cluster. Written by `trainwright plan`.
# Safe to run again: what is there already is updated or left as it is. Needs the AWS command line 2 and pcluster 3.16.1.
# The files of the plan stay as they are; copies with the ids of what was created are kept under .deployed/.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=p4de-boot-scripts
region=us-west-2
aws=(aws --region "$region" --output text)

for program in aws pcluster sha256sum; do
  command -v "$program" > /dev/null || { echo "error: $program is not installed" >&2; exit 2; }
done
account=$("${aws[@]}" sts get-caller-identity --query Account)
echo "deploying $cluster in $region, account $account" >&2

rm -rf .deployed
install -d -m 0700 .deployed/stacks
cp cluster.yaml .deployed/
cp stacks/*.parameters.json .deployed/stacks/

# cluster_state: the cluster's status, or `none`. An answer that cannot be had ends the script: it is not "none".
cluster_state() {
  local found
  found=$(pcluster list-clusters --region "$region" --query "clusters[?clusterName=='$cluster'].clusterStatus")
  case $found in *[A-Z]*) tr -dc 'A-Z_' <<< "$found" ;; *) echo none ;; esac
}

# stack KEY: create or update one stack, then put its outputs where the plan refers to them.
stack() {
  local key=$1 name=$cluster-$1
  echo "stack $name" >&2
  "${aws[@]}" cloudformation deploy --stack-name "$name" --template-file "stacks/$key.yaml" \
    --parameter-overrides "file://.deployed/stacks/$key.parameters.json" --capabilities CAPABILITY_IAM \
    --no-fail-on-empty-changeset --tags "trainwright:cluster=$cluster" >&2
  "${aws[@]}" cloudformation describe-stacks --stack-name "$name" \
    --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' |
    while read -r output value; do
      sed -i "s|stack-output:$key\.$output\b|$value|g" .deployed/cluster.yaml .deployed/stacks/*.parameters.json
    done
}

stack network # the spec names no network
stack bucket # boot scripts are fetched from it; there is room for data
stack lustre-fsx # the file system at /fsx; it outlives the cluster

# upload FILE SHA256 KEY: a file of this plan that nodes fetch, unchanged since it was planned.
upload() {
  echo "$2  $1" | sha256sum --check --quiet || { echo "error: $1 is not the file that was planned" >&2; exit 1; }
  "${aws[@]}" s3 cp --only-show-errors "$1" "s3://$bucket/$3"
}

bucket=$("${aws[@]}" cloudformation describe-stacks --stack-name "$cluster-bucket" \
  --query "Stacks[0].Outputs[?OutputKey=='BucketName'].OutputValue")
upload runtime/requirements.txt 521b8ac3cfea2ef599471b342052a394058d1d5172c22660a8220c1e539650f2 trainwright/p4de-boot-scripts/521b8ac3cfea2ef5/requirements.txt
upload runtime/trainwright.zip 1776f86fee37b7c7fb70f4d0d3cb93be123676405e632e1e636d91a8935111d9 trainwright/p4de-boot-scripts/1776f86fee37b7c7/trainwright.zip
upload runtime/uv.txt 836ac0c91c6cb60f6c1d36bde3bfd4a2c9c21b19c40f360b1fac8e838f613006 trainwright/p4de-boot-scripts/836ac0c91c6cb60f/uv.txt
upload scripts/completions.sh 1483186b0ab758f0db5a3e73c33256c51200925fc4e72dfb36039f473e38a332 trainwright/p4de-boot-scripts/1483186b0ab758f0/completions.sh
upload scripts/docker.sh 7635149ec0644463dabe9ff124c86c6f7771b4f0d3d55e764e22db20938f4eb2 trainwright/p4de-boot-scripts/7635149ec0644463/docker.sh
upload scripts/enroot.sh 4af186c20f31091b58dc3baccf7bd44eba923b9d66432182a6850a0cde7d737e trainwright/p4de-boot-scripts/4af186c20f31091b/enroot.sh
upload scripts/head.sh 979ef1603b45b1f90746a719d41084f2d89fab60b965f5443b9d96abd2b81d91 trainwright/p4de-boot-scripts/head/head.sh
upload scripts/runtime.sh c400cf0dd8d812df4272f71da6cdabbd981c22c7c4b9e2d5e8f64eba34c15058 trainwright/p4de-boot-scripts/c400cf0dd8d812df/runtime.sh

if grep -nE '^[^#]*stack-output:' .deployed/cluster.yaml; then
  echo "error: the lines above refer to stacks that have no such output" >&2
  exit 1
fi
state=$(cluster_state)
if [ "$state" = none ]; then verb=create-cluster; else verb=update-cluster; fi
echo "pcluster $verb; a new cluster takes 10 to 20 minutes" >&2
answer=$(pcluster "$verb" --region "$region" --cluster-name "$cluster" --cluster-configuration .deployed/cluster.yaml) ||
  case $answer in
    *"No changes found"*) echo "the cluster is as planned" >&2 ;;
    *) echo "$answer" >&2; exit 1 ;;
  esac

while sleep 20; do
  state=$(cluster_state)
  echo "$(date +%H:%M:%S) $state" >&2
  case $state in
    *_COMPLETE) break ;;
    *_FAILED | none)
      pcluster get-cluster-stack-events --region "$region" --cluster-name "$cluster" \
        --query "events[?contains(resourceStatus, 'FAILED')].[logicalResourceId,resourceStatusReason]" >&2
      exit 1
      ;;
  esac
done
pcluster describe-cluster --region "$region" --cluster-name "$cluster" --query headNode
