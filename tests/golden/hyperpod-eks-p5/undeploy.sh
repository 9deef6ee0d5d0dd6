#!/bin/bash
# Removes what deploy.sh of this plan made: jobs and volumes first, then the cluster, then its stacks in reverse order.
# Written by `trainwright plan`.
# Stacks that hold data are kept unless they are named: ./undeploy.sh bucket lustre-fsx
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=hyperpod-eks-p5
region=us-east-2
aws=(aws --region "$region" --output text)
named=" $* "

# remove_first KEY: the stack whose nodes are in the cluster goes before it.
remove_first() {
  "${aws[@]}" cloudformation delete-stack --stack-name "$cluster-$1"
  "${aws[@]}" cloudformation wait stack-delete-complete --stack-name "$cluster-$1"
}

# An answer that cannot be had ends the script: it is not "no such cluster".
clusters=$("${aws[@]}" eks list-clusters --query "clusters[?@=='$cluster']")
if [ -n "$clusters" ]; then
  owner=$("${aws[@]}" eks describe-cluster --name "$cluster" --query 'cluster.tags."trainwright:cluster"')
  [ "$owner" = "$cluster" ] || { echo "error: $cluster was not made by this plan" >&2; exit 1; }
  install -d -m 0700 .deployed
  export KUBECONFIG=$PWD/.deployed/kubeconfig
  eksctl utils write-kubeconfig --region "$region" --cluster "$cluster" --kubeconfig "$KUBECONFIG"
  # Claims whose volume would be deleted with them belong to somebody: they are shown, and end this script.
  claims=$(kubectl get pv -o json |
    jq -r '.items[] | select(.spec.persistentVolumeReclaimPolicy == "Delete") | .spec.claimRef.name // empty')
  if [ -n "$claims" ] && [[ $named != *" volumes "* ]]; then
    printf 'error: these claims hold volumes that would be deleted; ./undeploy.sh volumes does so:\n%s\n' "$claims" >&2
    exit 1
  fi
  # What Kubernetes made outside the cluster's stacks would be left behind: load balancers and their network interfaces.
  kubectl get services --all-namespaces -o json |
    jq -r '.items[] | select(.spec.type == "LoadBalancer") | "\(.metadata.namespace) \(.metadata.name)"' |
    while read -r namespace service; do
      kubectl delete service --namespace "$namespace" "$service" --wait --timeout 5m
    done
  kubectl get pvc --all-namespaces -o json |
    jq -r '.items[] | "\(.metadata.namespace) \(.metadata.name)"' |
    while read -r namespace claim; do
      kubectl delete pvc --namespace "$namespace" "$claim" --wait --timeout 10m
    done
  remove_first hyperpod
  echo "deleting cluster $cluster; this takes about 15 minutes" >&2
  eksctl delete cluster --region "$region" --name "$cluster" --wait --disable-nodegroup-eviction
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
remove role
keep lustre-fsx
keep bucket
if [ "$left" -eq 0 ]; then remove network; else echo "kept: $cluster-network (the stacks above use it)" >&2; fi
rm -rf .deployed
