#!/bin/bash
# Removes what deploy.sh of this plan made: the HyperPod cluster, then its stacks in reverse order. Written by
# `trainwright plan`.
# Stacks that hold data are kept unless they are named: ./undeploy.sh bucket lustre-fsx openzfs-home accounting
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=hyperpod-p5
region=us-east-2
aws=(aws --region "$region" --output text)
named=" $* "

# remove KEY: one stack, if it is there, and wait until it is gone.
remove() {
  local found
  found=$("${aws[@]}" cloudformation list-stacks \
    --query "StackSummaries[?StackName=='$cluster-$1' && StackStatus!='DELETE_COMPLETE'].StackStatus")
  [ -n "$found" ] || return 0
  echo "deleting stack $cluster-$1" >&2
  "${aws[@]}" cloudformation delete-stack --stack-name "$cluster-$1"
  "${aws[@]}" cloudformation wait stack-delete-complete --stack-name "$cluster-$1"
}

# keep KEY: a stack that holds data is only removed by name; its file system, bucket or database outlives it even then.
keep() {
  case $named in
    *" $1 "*) remove "$1" ;;
    *) echo "kept: $cluster-$1 (it holds data and goes on costing; ./undeploy.sh $1 removes it)" >&2; left=1 ;;
  esac
}

left=0
remove hyperpod
remove role
keep accounting
keep openzfs-home
keep lustre-fsx
keep bucket
if [ "$left" -eq 0 ]; then remove network; else echo "kept: $cluster-network (the stacks above use it)" >&2; fi
rm -rf .deployed
