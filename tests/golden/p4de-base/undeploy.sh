#!/bin/bash
# Removes what deploy.sh of this plan made: the cluster, then its stacks in reverse order. Written by `trainwright plan`.
# Stacks that hold data are kept unless they are named, and then their data is deleted: ./undeploy.sh bucket lustre-fsx openzfs-home
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=p4de-base
region=us-east-1
aws=(aws --region "$region" --output text)
known=" bucket lustre-fsx openzfs-home "
for word in "$@"; do
  case $known in
    *" $word "*) ;;
    *)
      echo "usage: ./undeploy.sh [NAME...] removes the cluster; what holds data goes only by name: bucket lustre-fsx openzfs-home" >&2
      exit 2
      ;;
  esac
done
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

# there KEY: whether the stack exists. An answer that cannot be had ends the script: it is not "no".
there() {
  local found
  found=$("${aws[@]}" cloudformation list-stacks \
    --query "StackSummaries[?StackName=='$cluster-$1' && StackStatus!='DELETE_COMPLETE'].StackStatus") || exit 1
  [ -n "$found" ]
}

# remove KEY: one stack, if it is there, and wait until it is gone.
remove() {
  there "$1" || return 0
  data_of "$1"
  echo "deleting stack $cluster-$1" >&2
  "${aws[@]}" cloudformation delete-stack --stack-name "$cluster-$1"
  "${aws[@]}" cloudformation wait stack-delete-complete --stack-name "$cluster-$1"
}

# data_of KEY: what must go before the stack can. A deleted stack leaves its file system, and a security group that a
# file system uses cannot be deleted; a database is protected until its stack says otherwise.
data_of() {
  local id
  case $1 in
    lustre-* | openzfs-*)
      id=$(output_of "$1" FileSystemId)
      [ -n "$(state_of "$id")" ] || return 0
      echo "deleting file system $id with every file on it" >&2
      case $1 in
        lustre-*) "${aws[@]}" fsx delete-file-system --file-system-id "$id" \
          --lustre-configuration SkipFinalBackup=true > /dev/null ;;
        *) "${aws[@]}" fsx delete-file-system --file-system-id "$id" --open-zfs-configuration \
          SkipFinalBackup=true,Options=DELETE_CHILD_VOLUMES_AND_SNAPSHOTS > /dev/null ;;
      esac
      for _ in {1..180}; do # an hour
        [ -n "$(state_of "$id")" ] || return 0
        sleep 20
      done
      echo "error: file system $id is still $(state_of "$id") after an hour; run this again when it is gone" >&2
      exit 1
      ;;
    bucket)
      id=$(output_of "$1" BucketName)
      echo "left: s3://$id with its objects; it goes on costing by what is stored. To delete it: empty it with all" \
        "versions in the console, then aws s3api delete-bucket --bucket $id" >&2
      ;;
    accounting)
      "${aws[@]}" cloudformation update-stack --stack-name "$cluster-$1" --use-previous-template \
        --capabilities CAPABILITY_IAM --parameters ParameterKey=Protect,ParameterValue=false \
        ParameterKey=Vpc,UsePreviousValue=true ParameterKey=Subnets,UsePreviousValue=true > /dev/null
      "${aws[@]}" cloudformation wait stack-update-complete --stack-name "$cluster-$1"
      echo "left: the database's last snapshot and the secret with its password; both go on costing" >&2
      ;;
  esac
}

# output_of KEY NAME: an output of a stack.
output_of() {
  "${aws[@]}" cloudformation describe-stacks --stack-name "$cluster-$1" \
    --query "Stacks[0].Outputs[?OutputKey=='$2'].OutputValue"
}

# state_of ID: the state of a file system; nothing where it is gone.
state_of() {
  "${aws[@]}" fsx describe-file-systems --query "FileSystems[?FileSystemId=='$1'].Lifecycle"
}

# keep KEY: a stack that holds data is only removed by name, and its data with it.
keep() {
  case $named in *" $1 "*) remove "$1"; return ;; esac
  there "$1" || return 0
  echo "kept: $cluster-$1 (it holds data and goes on costing; ./undeploy.sh $1 deletes it)" >&2
  [ "$1" = bucket ] || left=1 # a bucket is in no network
}

left=0
keep openzfs-home
keep lustre-fsx
keep bucket
if [ "$left" -eq 0 ]; then remove network; else echo "kept: $cluster-network (the stacks above use it)" >&2; fi
rm -rf .deployed
