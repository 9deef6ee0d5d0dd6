#!/bin/bash
# Deploys this plan, and nothing else: its stacks in order, the EKS cluster, then charts and objects. Written by
# `trainwright plan`. Safe to run again: what is there already is updated or left as it is.
# Needs the AWS command line 2, eksctl, kubectl, helm and jq. Copies of the plan's files with the ids of what was created are
# kept under .deployed/, and so is the kubeconfig: your own is not touched.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=eks-p5-block
region=us-east-2
aws=(aws --region "$region" --output text)
export KUBECONFIG=$PWD/.deployed/kubeconfig

for program in aws eksctl kubectl helm jq; do
  command -v "$program" > /dev/null || { echo "error: $program is not installed" >&2; exit 2; }
done
account=$("${aws[@]}" sts get-caller-identity --query Account)
echo "deploying $cluster in $region, account $account" >&2

rm -rf .deployed
install -d -m 0700 .deployed/stacks .deployed/kubernetes
cp cluster.yaml .deployed/
cp stacks/*.parameters.json .deployed/stacks/
cp kubernetes/*.yaml .deployed/kubernetes/

cp -r eksctl .deployed/

# stack KEY: create or update one stack, then put its outputs where the plan refers to them.
stack() {
  local key=$1 name=$cluster-$1
  echo "stack $name" >&2
  "${aws[@]}" cloudformation deploy --stack-name "$name" --template-file "stacks/$key.yaml" \
    --parameter-overrides "file://.deployed/stacks/$key.parameters.json" --capabilities CAPABILITY_IAM \
    --no-fail-on-empty-changeset --tags "trainwright:cluster=$cluster" trainwright:platform=eks >&2
  "${aws[@]}" cloudformation describe-stacks --stack-name "$name" \
    --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' |
    while read -r output value; do
      sed -i "s|stack-output:$key\.$output\b|$value|g" .deployed/cluster.yaml .deployed/kubernetes/*.yaml .deployed/stacks/*.parameters.json .deployed/eksctl/*.yaml
    done
}

stack network # the spec names no network
stack lustre-fsx # the file system at /fsx; it outlives the cluster

if grep -rnE '^[^#]*stack-output:' .deployed/cluster.yaml .deployed/kubernetes .deployed/eksctl; then
  echo "error: the lines above refer to stacks that have no such output" >&2
  exit 1
fi

# identity NAMESPACE ACCOUNT FILE: the role of a service account, where it has none yet.
identity() {
  local there
  there=$("${aws[@]}" eks list-pod-identity-associations --cluster-name "$cluster" --namespace "$1" \
    --service-account "$2" --query 'associations[].associationId')
  [ -n "$there" ] || eksctl create podidentityassociation -f "$3"
}

# An answer that cannot be had ends the script: it is not "no such cluster".
clusters=$("${aws[@]}" eks list-clusters --query "clusters[?@=='$cluster']")
if [ -z "$clusters" ]; then
  echo "eksctl create cluster; it takes 15 to 25 minutes" >&2
  eksctl create cluster -f .deployed/cluster.yaml --install-nvidia-plugin=false --install-neuron-plugin=false --kubeconfig "$KUBECONFIG"
else
  owner=$("${aws[@]}" eks describe-cluster --name "$cluster" --query 'cluster.tags."trainwright:cluster"')
  [ "$owner" = "$cluster" ] || { echo "error: $cluster exists and was not made by this plan" >&2; exit 1; }
  eksctl utils write-kubeconfig --region "$region" --cluster "$cluster" --kubeconfig "$KUBECONFIG"
  eksctl create nodegroup -f .deployed/cluster.yaml --install-nvidia-plugin=false --install-neuron-plugin=false
  eksctl create addon -f .deployed/cluster.yaml
  identity default trainwright .deployed/eksctl/identity-trainwright.yaml
fi
kubectl wait --for=condition=Ready node -l eks.amazonaws.com/nodegroup=system --timeout=10m

# the PyTorchJob kind of job
kubectl apply --server-side -k operators/training-operator
# install NAME: a chart of charts.json, in its pinned version, with its values.
install_chart() {
  local chart repo version namespace
  chart=$(jq -r --arg name "$1" '.[] | select(.name == $name) | .chart' charts.json)
  repo=$(jq -r --arg name "$1" '.[] | select(.name == $name) | .repo // empty' charts.json)
  version=$(jq -r --arg name "$1" '.[] | select(.name == $name) | .version' charts.json)
  namespace=$(jq -r --arg name "$1" '.[] | select(.name == $name) | .namespace' charts.json)
  jq --arg name "$1" '.[] | select(.name == $name) | .values' charts.json |
    helm upgrade --install "$1" "$chart" ${repo:+--repo "$repo"} --version "$version" --namespace "$namespace" \
      --create-namespace --values - --wait --timeout 10m
}

# eksctl installs an EFA plugin of its own with node groups that have EFA: two would take each other's place on a node.
kubectl delete daemonset --namespace kube-system aws-efa-k8s-device-plugin-daemonset --ignore-not-found
install_chart nvidia-device-plugin # offers nvidia.com/gpu to pods
install_chart aws-efa-k8s-device-plugin # offers vpc.amazonaws.com/efa to pods; without it NCCL falls back to TCP
install_chart kueue # a job starts when all its nodes are there, or waits in a queue: no half-started jobs holding GPUs
for file in .deployed/kubernetes/*.yaml; do
  kubectl apply --server-side -f "$file"
done

# block QUEUE RESERVATION NODES: a group on a capacity block has no nodes until the block has begun. They are started
# where it has, and where fewer are there; else the command to run then is printed.
block() {
  local state start nodes
  read -r state start < <("${aws[@]}" ec2 describe-capacity-reservations --capacity-reservation-ids "$2" \
    --query 'CapacityReservations[0].[State,StartDate]') || { echo "error: no answer about capacity block $2" >&2; exit 1; }
  nodes=$(kubectl get nodes -l "trainwright/queue=$1" -o name | wc -l)
  local scale=(eksctl scale nodegroup --region "$region" --cluster "$cluster" --name "$1" --nodes "$3")
  if [ "$state" != active ]; then
    echo "queue $1 has no nodes yet: capacity block $2 is $state and begins at $start. Run then: ${scale[*]}" >&2
  elif [ "$nodes" -lt "$3" ]; then
    "${scale[@]}"
  fi
}

block train cr-0b1c2d3e4f5a67891 4
kubectl get nodes
echo "kubeconfig: $KUBECONFIG" >&2
