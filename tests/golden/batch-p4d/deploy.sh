#!/bin/bash
# Deploys this plan, and nothing else: its stacks in order. Written by `trainwright plan`.
# Safe to run again: what is there already is updated or left as it is. Needs the AWS command line 2.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=batch-p4d
region=us-east-1
aws=(aws --region "$region" --output text)

command -v aws > /dev/null || { echo "error: aws is not installed" >&2; exit 2; }
account=$("${aws[@]}" sts get-caller-identity --query Account)
echo "deploying $cluster in $region, account $account" >&2

rm -rf .deployed
install -d -m 0700 .deployed/stacks
cp stacks/*.parameters.json .deployed/stacks/

# stack KEY: create or update one stack, then put its outputs where the plan refers to them.
stack() {
  local key=$1 name=$cluster-$1
  echo "stack $name" >&2
  "${aws[@]}" cloudformation deploy --stack-name "$name" --template-file "stacks/$key.yaml" \
    --parameter-overrides "file://.deployed/stacks/$key.parameters.json" --capabilities CAPABILITY_IAM \
    --no-fail-on-empty-changeset --tags "trainwright:cluster=$cluster" trainwright:platform=batch >&2
  "${aws[@]}" cloudformation describe-stacks --stack-name "$name" \
    --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' |
    while read -r output value; do
      sed -i "s|stack-output:$key\.$output\b|$value|g" .deployed/stacks/*.parameters.json
    done
}

stack network # the spec names no network
stack lustre-fsx # the file system at /fsx; it outlives the cluster
stack batch-train # nodes and job queue of train
echo "jobs go to it with: trainwright submit" >&2
