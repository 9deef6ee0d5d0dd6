#!/bin/bash
# Removes what deploy.sh of this plan made: the cluster, then its stacks in reverse order. Written by `trainwright plan`.
# Stacks that hold data are kept unless they are named: ./undeploy.sh bucket lustre-fsx
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=p5-reservation-group
region=us-east-2
aws=(aws --region "$region" --output text)
named=" $* "

# cluster_state: the cluster's status, or `none`. An answer that cannot be had ends the script: it is not "none".
cluster_state() {
  local found
  found=$(pcluster list-clusters --region "$region" --query "clusters[?clusterName=='$cluster'].clusterStatus")
  case $found in *[A-Z]*) tr -dc 'A-Z_' <<< "$found" ;; *) echo none ;; esac
}

state=$(cluster_state)
if [ "$state" != none ]; then
  echo "deleting cluster $cluster; this takes about 10 minutes" >&2
  pcluster delete-cluster --region "$region" --cluster-name "$cluster" > /dev/null
  while [ "$state" != none ]; do
    sleep 20
    state=$(cluster_state)
    [ "$state" != DELETE_FAILED ] || { echo "error: the cluster could not be deleted; its stacks are kept" >&2; exit 1; }
  done
fi

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
remove directory
keep lustre-fsx
keep bucket
if [ "$left" -eq 0 ]; then remove network; else echo "kept: $cluster-network (the stacks above use it)" >&2; fi
rm -rf .deployed
