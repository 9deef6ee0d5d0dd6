#!/bin/bash
# Removes what deploy.sh of this plan made: jobs and volumes first, then the cluster, then its stacks in reverse order.
# Written by `trainwright plan`.
# Stacks that hold data are kept unless they are named, and then their data is deleted: ./undeploy.sh lustre-fsx
# Jobs that wait or run end it before anything is removed, unless they are named too: ./undeploy.sh jobs
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=eks-g5
region=us-west-2
aws=(aws --region "$region" --output text)
known=" lustre-fsx jobs volumes "
for word in "$@"; do
  case $known in
    *" $word "*) ;;
    *)
      echo "usage: ./undeploy.sh [NAME...] removes the cluster; jobs and what holds data go only by name: lustre-fsx jobs volumes" >&2
      exit 2
      ;;
  esac
done
named=" $* "

# listed WORD...: objects of the cluster as JSON. An API that does not answer ends the script.
listed() {
  kubectl get "$@" -o json --request-timeout 60s
}

# busy_pods: the pods that have not ended and are of a job of trainwright or use a claim.
busy_pods() {
  listed pods --all-namespaces |
    jq -r '.items[] | select(.status.phase != "Succeeded" and .status.phase != "Failed")
      | select(.metadata.labels["app.kubernetes.io/managed-by"] == "trainwright"
          or ([.spec.volumes[]? | select(.persistentVolumeClaim)] | length > 0))
      | "\(.metadata.namespace)/\(.metadata.name) (\(.status.phase))"'
}

# delete_jobs: the jobs of trainwright, of every kind that the cluster knows, and wait until their pods are gone.
delete_jobs() {
  listed crd | jq -r '.items[].metadata.name' | { grep -xF -e pytorchjobs.kubeflow.org -e jobsets.jobset.x-k8s.io -e trainjobs.trainer.kubeflow.org -e mpijobs.kubeflow.org -e rayjobs.ray.io || true; } |
    while read -r kind; do
      kubectl delete "$kind" --all-namespaces -l app.kubernetes.io/managed-by=trainwright \
        --cascade=foreground --wait --timeout 10m
    done
}

# An answer that cannot be had ends the script: it is not "no such cluster".
clusters=$("${aws[@]}" eks list-clusters --query "clusters[?@=='$cluster']")
if [ -n "$clusters" ]; then
  owner=$("${aws[@]}" eks describe-cluster --name "$cluster" --query 'cluster.tags."trainwright:cluster"')
  [ "$owner" = "$cluster" ] || { echo "error: $cluster was not made by this plan" >&2; exit 1; }
  install -d -m 0700 .deployed
  export KUBECONFIG=$PWD/.deployed/kubeconfig
  eksctl utils write-kubeconfig --region "$region" --cluster "$cluster" --kubeconfig "$KUBECONFIG"
  # A claim stays as long as a pod uses it, so jobs go first.
  busy=$(busy_pods)
  if [ -n "$busy" ] && [[ $named = *" jobs "* ]]; then
    delete_jobs
    busy=$(busy_pods)
  fi
  if [ -n "$busy" ]; then
    printf 'error: these pods train, or use a volume; ./undeploy.sh jobs ends the jobs of trainwright:\n%s\n' "$busy" >&2
    exit 1
  fi
  # Claims whose volume would be deleted with them belong to somebody: they are shown, and end this script.
  claims=$(listed pv | jq -r '.items[] | select(.spec.persistentVolumeReclaimPolicy == "Delete") | .spec.claimRef.name // empty')
  if [ -n "$claims" ] && [[ $named != *" volumes "* ]]; then
    printf 'error: these claims hold volumes that would be deleted; ./undeploy.sh volumes does so:\n%s\n' "$claims" >&2
    exit 1
  fi
  # What Kubernetes made outside the cluster's stacks would be left behind: load balancers and their network interfaces.
  listed services --all-namespaces |
    jq -r '.items[] | select(.spec.type == "LoadBalancer") | "\(.metadata.namespace) \(.metadata.name)"' |
    while read -r namespace service; do
      kubectl delete service --namespace "$namespace" "$service" --wait --timeout 5m
    done
  listed pvc --all-namespaces |
    jq -r '.items[] | "\(.metadata.namespace) \(.metadata.name)"' |
    while read -r namespace claim; do
      kubectl delete pvc --namespace "$namespace" "$claim" --wait --timeout 5m
    done
  # Karpenter's nodes are in no stack: it ends them itself, as long as it runs, so its nodes go before those it runs on.
  # A pool alone is gone at once, while its nodes still run: each kind is waited for.
  kinds=$(listed crd | jq -r '.items[].metadata.name')
  for kind in nodepools.karpenter.sh nodeclaims.karpenter.sh ec2nodeclasses.karpenter.k8s.aws; do
    case $'\n'$kinds$'\n' in
      *$'\n'"$kind"$'\n'*) kubectl delete "$kind" --all --cascade=foreground --wait --timeout 20m ;;
    esac
  done
  echo "deleting cluster $cluster; this takes about 15 minutes" >&2
  eksctl delete cluster --region "$region" --name "$cluster" --wait --disable-nodegroup-eviction
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
remove karpenter
keep lustre-fsx
if [ "$left" -eq 0 ]; then remove network; else echo "kept: $cluster-network (the stacks above use it)" >&2; fi
rm -rf .deployed
