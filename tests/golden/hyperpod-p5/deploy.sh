#!/bin/bash
# Deploys this plan, and nothing else: its stacks in order, the scripts that nodes run, then the HyperPod cluster. Written by
# `trainwright plan`. Safe to run again: what is there already is updated or left as it is. Needs the AWS command line 2.
# The files of the plan stay as they are; copies with the ids of what was created are kept under .deployed/.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "$0")"

cluster=hyperpod-p5
region=us-east-2
aws=(aws --region "$region" --output text)

for program in aws sha256sum; do
  command -v "$program" > /dev/null || { echo "error: $program is not installed" >&2; exit 2; }
done
account=$("${aws[@]}" sts get-caller-identity --query Account)
echo "deploying $cluster in $region, account $account" >&2

# planned FILE SHA256: the file is the one that was planned.
planned() {
  echo "$2  $1" | sha256sum --check --quiet || { echo "error: $1 is not the file that was planned" >&2; exit 1; }
}
planned lifecycle/enroot.sh 280e5dfb8cf5389c74c1c7a85083d97b41c9699e09cdea356341cd21b288b404
planned lifecycle/node_facts.py 8b6043717586e7a9e3407da0765e97414d587f0a00ab2aba9afd34074e8ee7ad
planned lifecycle/on_create.sh af3ed59e93febab2a2475c46c6ac5893b8cc48d6f6595f1b23e19c92195f55ae
planned lifecycle/provisioning_parameters.json 3ddacd8e7aa6d2618b8c18fea20647d5be83f77eed24cc5cb94d026b349eb40d
planned lifecycle/runtime.sh eb59ed45d7c2d3cafbc9b384bff8acbd30aca5f86527de99434689c94995e1f7
planned lifecycle/slurm.sh 381d0917e64232be90d13804ae9e62b6f1a57f9efc8a3f4cbff40803bf8902b1
planned lifecycle/storage.sh 06bb3053fd197f15a1a8b8a87248f60092cee26a44cda673904e02d0c38ddc19
planned lifecycle/users.sh 562647703be8494cdf309cde55dabf7a81dffa69722bf32e754dae92960f74d3
planned runtime/requirements.txt 521b8ac3cfea2ef599471b342052a394058d1d5172c22660a8220c1e539650f2
planned runtime/trainwright.zip 1776f86fee37b7c7fb70f4d0d3cb93be123676405e632e1e636d91a8935111d9
planned runtime/uv.txt 836ac0c91c6cb60f6c1d36bde3bfd4a2c9c21b19c40f360b1fac8e838f613006

rm -rf .deployed
install -d -m 0700 .deployed/stacks
cp hyperpod.yaml .deployed/
cp -r lifecycle .deployed/
cp stacks/*.parameters.json .deployed/stacks/
if [ -d runtime ]; then cp -r runtime .deployed/; fi

# stack KEY: create or update one stack, then put its outputs where the plan refers to them.
stack() {
  local key=$1 name=$cluster-$1
  echo "stack $name" >&2
  "${aws[@]}" cloudformation deploy --stack-name "$name" --template-file "stacks/$key.yaml" \
    --parameter-overrides "file://.deployed/stacks/$key.parameters.json" --capabilities CAPABILITY_IAM \
    --no-fail-on-empty-changeset --tags "trainwright:cluster=$cluster" trainwright:platform=hyperpod >&2
  "${aws[@]}" cloudformation describe-stacks --stack-name "$name" \
    --query 'Stacks[0].Outputs[].[OutputKey,OutputValue]' |
    while read -r output value; do
      sed -i "s|stack-output:$key\.$output\b|$value|g" .deployed/hyperpod.yaml .deployed/lifecycle/* .deployed/stacks/*.parameters.json
    done
}

stack network # the spec names no network
stack bucket # boot scripts are fetched from it; there is room for data
stack lustre-fsx # the file system at /fsx; it outlives the cluster
stack openzfs-home # the folders at /home; they outlive the cluster
stack accounting # Slurm's job records outlive the head node
stack role # what the nodes may do in the account, the controller apart

if grep -nE '^[^#]*stack-output:' .deployed/hyperpod.yaml .deployed/lifecycle/*; then
  echo "error: the lines above refer to stacks that have no such output" >&2
  exit 1
fi
bucket=$("${aws[@]}" cloudformation describe-stacks --stack-name "$cluster-bucket" \
  --query "Stacks[0].Outputs[?OutputKey=='BucketName'].OutputValue")
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/enroot.sh "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/enroot.sh
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/node_facts.py "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/node_facts.py
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/on_create.sh "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/on_create.sh
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/provisioning_parameters.json "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/provisioning_parameters.json
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/runtime.sh "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/runtime.sh
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/slurm.sh "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/slurm.sh
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/storage.sh "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/storage.sh
"${aws[@]}" s3 cp --only-show-errors .deployed/lifecycle/users.sh "s3://$bucket/"trainwright/hyperpod-p5/lifecycle-92b406d678ffda18/users.sh
"${aws[@]}" s3 cp --only-show-errors .deployed/runtime/requirements.txt "s3://$bucket/"trainwright/hyperpod-p5/521b8ac3cfea2ef5/requirements.txt
"${aws[@]}" s3 cp --only-show-errors .deployed/runtime/trainwright.zip "s3://$bucket/"trainwright/hyperpod-p5/1776f86fee37b7c7/trainwright.zip
"${aws[@]}" s3 cp --only-show-errors .deployed/runtime/uv.txt "s3://$bucket/"trainwright/hyperpod-p5/836ac0c91c6cb60f/uv.txt

echo "stack $cluster-hyperpod; a new cluster takes 10 to 30 minutes, more with deep health checks" >&2
"${aws[@]}" cloudformation deploy --stack-name "$cluster-hyperpod" --template-file .deployed/hyperpod.yaml \
  --no-fail-on-empty-changeset --tags "trainwright:cluster=$cluster" trainwright:platform=hyperpod >&2
"${aws[@]}" sagemaker list-cluster-nodes --cluster-name "$cluster" \
  --query 'ClusterNodeSummaries[].[InstanceGroupName,InstanceId,InstanceStatus.Status]'
