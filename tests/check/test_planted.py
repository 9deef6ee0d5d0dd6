"""Mistakes planted one at a time into files that are right: at least 95 % must be reported. The list was written from
what goes wrong in practice, not from the list of rules."""

from __future__ import annotations

import shutil
from pathlib import Path

from trainwright.check.engine import check

FILES = Path(__file__).parent / "files"
PLANTED = {
    "jobs/good-fsdp.sbatch": [
        ("GPUS_PER_NODE=8", "GPUS_PER_NODE=16"),
        ("NCCL_SOCKET_IFNAME=en", "NCCL_SOCKET_IFNAME=eth0"),
        ('--rdzv_endpoint="$head:$port"', "--rdzv_endpoint=localhost:29500"),
        ("port=$((10000 + SLURM_JOB_ID % 50000))", "port=$RANDOM"),
        ('--nnodes="$SLURM_JOB_NUM_NODES"', "--nnodes=8"),
        ("--num_key_value_heads=8", "--num_key_value_heads=2"),
        ("--num_heads=32", "--num_heads=24"),
        ("--checkpoint_freq=500", "--checkpoint_freq=500000"),
        ("--checkpoint_dir=/fsx/checkpoints/llama3_1_8b", "--checkpoint_dir=/tmp/checkpoints"),
        ("--output=%x_%j.out", "--output=logs/%x_%j.out"),
        ("--rdzv_backend=c10d", "--rdzv-backends=c10d"),
        ("export NCCL_DEBUG=WARN", "export NCCL_NET_GDR_LEVEL=LOC"),
        ('[ "$SLURM_JOB_NUM_NODES" -gt 8 ]', '[ "$NODES" -gt 8 ]'),
        ('"$head:$port"', '"${haed}:$port"'),
        ("set -euo pipefail", "set -euo pipefail\nexport RDMAV_FORK_SAFE=1"),
        ("set -euo pipefail", "set -euo pipefail\npip install torch>=2.4"),
        ("set -euo pipefail", "set -euo pipefail\nhuggingface-cli login --token $HF_TOKEN"),
        ("#SBATCH --exclusive\n", "\nset -x\n#SBATCH --exclusive\n"),
        ("--ntasks-per-node=1", "--ntasks-per-node=8"),
    ],
    "jobs/good-megatron.sbatch": [
        ('"${TP:=8}"', '"${TP:=3}"'),
        ('"${PP:=4}"', '"${PP:=7}"'),
        ("--global-batch-size 1024", "--global-batch-size 1001"),
        ("--lr-warmup-iters 500", "--lr-warmup-iters 50000"),
        ("--lr-decay-iters 20000", "--lr-decay-iters 320000"),
        ("--num-query-groups 8", "--num-query-groups 7"),
        ("--seq-length 4096", "--seq-length 8192"),
        ("--micro-batch-size 1", "--micro-batchsize 1"),
        ("--container-mounts /fsx:/fsx", "--container-mounts /data:/data"),
        ("#SBATCH --exclusive", "#SBATCH --exclusive\n#SBATCH --requeue"),
    ],
    "jobs/good-pytorchjob.yaml": [
        ("vpc.amazonaws.com/efa: 32\n                limits", "vpc.amazonaws.com/efa: 16\n                limits"),
        ("nvidia.com/gpu: 8\n                  vpc.amazonaws.com/efa: 32\n                limits",
         "nvidia.com/gpu:\n                  vpc.amazonaws.com/efa: 32\n                limits"),
        ("- --nnodes=4", "- --nnodes=2"),
        ("fsdp:pytorch2.7.1", "fsdp:latest"),
        ("emptyDir: {medium: Memory}", "emptyDir: {}"),
        ("{name: fsx, mountPath: /fsx}", "{name: data, mountPath: /fsx}"),
        ("valueFrom: {secretKeyRef: {name: hugging-face, key: token}}", "value: hf_abc"),
        ("--checkpoint_dir=/fsx/checkpoints", "--checkpoint_dir=/checkpoints"),
        ("--nproc_per_node=8", "--nproc_per_node=16"),
    ],
    "jobs/good-nccl.Dockerfile": [
        (" --skip-kmod", ""),
        ("git checkout ${NCCL_TESTS_VERSION}", "git checkout -b v2.16"),
        ("git clone -b ${NCCL_VERSION}", "git clone"),
        ("nvidia/cuda:${CUDA_VERSION}-devel-ubuntu22.04", "nvidia/cuda:latest"),
    ],
    "right/many-queues.yaml": [
        ("MinCount: 16", "MinCount: 20"),
        ("{ImdsSupport: v2.0}", "{ImdsSupport: v1.0}"),
        ("p5en.48xlarge", "p5en.48xlareg"),
        ("MountDir: /apps", "MountDir: /fsx/apps"),
        ("InstanceType: m6i.4xlarge", "InstanceType: m7g.4xlarge"),
        ("KeyName: cluster-ed25519", "KeyName: cluster-ed25519, AllowedIps: 0.0.0.0/0"),
        ("- Name: infer", "- Name: block"),
        ("AssignPublicIp", "AssignPublicIP"),
        ("UserName: clusteradmin\n", "\n"),
        ("AmazonSSMManagedInstanceCore", "AmazonSSMFullAccess"),
        ("cr-0123456789abcdef0", "cr-xxxxxxxx"),
    ],
    "right/storage.yaml": [
        ("StorageCapacity: 19200", "StorageCapacity: 19000"),
        ("FromPort: 988, ToPort: 1023", "FromPort: 1021, ToPort: 1023"),
        ("DeletionPolicy: Retain", "DeletionPolicy: Delete"),
        ("FileSystemTypeVersion: 2.15", "FileSystemTypeVersion: 2.12"),
        ("FileSystemId: !Ref Data,", "FileSystemId: Data,"),
        ("PerUnitStorageThroughput: 250", "PerUnitStorageThroughput: 300"),
        ("SubnetIds: [!Select [0, !Ref Subnets]]\n      KmsKeyId", "SubnetIds: [!Ref Subnet]\n      KmsKeyId"),
        ("FromPort: 111, ToPort: 111, SourceSecurityGroupId: !Ref Clients",
         "FromPort: 111, ToPort: 111, CidrIp: 0.0.0.0/0"),
    ],
    "../../../src/trainwright/check/examples/SLU004/good.slurm.conf": [
        ("Nodes=gpu[01-16]", "Nodes=gpu[01-18]"),
        ("GresTypes=gpu\n", ""),
        ("select/cons_tres", "select/linear"),
        ("CPUs=192", "CPUs=200"),
        ("task/affinity,task/cgroup", "task/affinity"),
    ],
    "../../../src/trainwright/check/examples/TFM001/good.tf": [
        ("AL2023_x86_64_NVIDIA", "AL2023_x86_64_STANDARD"),
        ("p5.48xlarge", "p5.48xlrage"),
        ("min_size       = 4", "min_size       = 6"),
        ("instance_market_options = { market_type = \"capacity-block\" }", ""),
        ("enable_efa_support      = true", ""),
    ],
    "../../../src/trainwright/check/examples/K8S002/good.kueue.yaml": [
        ("nominalQuota: 16", "nominalQuota: 8"),
        ("{name: cpu, nominalQuota: 384}", "{name: cpus, nominalQuota: 384}"),
        ("- name: p5-nodes", "- name: p5-noeds"),
        ("train:1.4.0", "train:latest"),
    ],
    "../../../src/trainwright/check/examples/K8S002/good.rayjob.yaml": [
        ("shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false"),
        ('num-gpus: "1"', 'num-gpus: "4"'),
        ("limits: {nvidia.com/gpu: 1}", "limits: {nvidia.com/gpu: }"),
    ],
    "../../../src/trainwright/check/examples/K8S003/good.karpenter.yaml": [
        ("consolidationPolicy: WhenEmpty", "consolidationPolicy: WhenEmptyOrUnderutilized"),
        ("[us-east-2a]", "[us-east-2a, us-east-2b, us-east-2c]"),
        ("  capacityReservationSelectorTerms: [{id: cr-0a1b2c3d4e5f67890}]\n", ""),
        ("al2023@v20250801", "al2023@latest"),
    ],
    "../../../src/trainwright/check/examples/JOB015/good.accelerate.yaml": [
        ("num_processes: 32", "num_processes: 31"),
        ("machine_rank: 0", "machine_rank: 4"),
        ("10.0.3.17", "127.0.0.1"),
    ],
    "right/eks.yaml": [
        ("efaEnabled: true", "efaEnabled: false"),
        ("maxSize: 8", "maxSize: 4"),
        ("subnets: [subnet-0123456789abcdef1]\n", "\n"),
        ("[us-west-2a, us-west-2b]", "[us-east-1a, us-west-2b]"),
        ("privateNetworking: true\n    spot: false", "ssh: {allow: true}\n    spot: false"),
        ("minSize: 2\n    maxSize: 4", "amiFamily: AmazonLinux2\n    minSize: 2\n    maxSize: 4"),
    ],
    "../../../src/trainwright/check/examples/DSP001/good.json": [
        ('"train_batch_size": 256', '"train_batch_size": 250'),
        ('"fp16": {"enabled": false}', '"fp16": {"enabled": true}'),
        ('"warmup_num_steps": 25', '"warmup_num_steps": 5000'),
    ],
    "../../../src/trainwright/check/examples/HYP001/good.hyperpod.json": [
        ('"InstanceType": "ml.p5.48xlarge"', '"InstanceType": "p5.48xlarge"'),
        ('"NodeRecovery": "Automatic"', '"NodeRecovery": "Auto"'),
        ('"InstanceCount": 4', '"InstanceCounts": 4'),
        ("s3://sagemaker-lifecycle-ml", "s3://lifecycle-ml"),
        ('"InstanceGroupName": "worker-group-1"', '"InstanceGroupName": "controller-machine"'),
    ],
    "../../../src/trainwright/check/examples/NET006/good.cloudformation.yaml": [
        ("NetworkCardIndex: 3, DeviceIndex: 1", "NetworkCardIndex: 2, DeviceIndex: 1"),
        ("HttpTokens: required", "HttpTokens: optional"),
        ("NetworkCardIndex: 0, DeviceIndex: 0, InterfaceType: efa,", "NetworkCardIndex: 0, DeviceIndex: 1, "
         "InterfaceType: efa,"),
    ],
    "../../../src/trainwright/check/examples/PYT001/good.py": [
        ("        sampler.set_epoch(epoch)\n", ""),
        ("batch_size=32, sampler=sampler", "batch_size=32, shuffle=True"),
    ],
    "../../../src/trainwright/check/examples/PYT003/good.py": [
        ("    if dist.get_rank() == 0:\n", "    if model is not None:\n"),
        ('"optimizer": optimizer.state_dict(), ', ""),
    ],
    "../../../src/trainwright/check/examples/TFM002/good.tfvars": [("node_count = 16", "nodes_count = 16")],
    "../../../src/trainwright/check/examples/STO001/good.unit.tf": [
        ("= 1200", '= "1200GiB"'),
        ("[aws_subnet.a.id]", "[aws_subnet.a.id, aws_subnet.b.id]"),
    ],
    "jobs/good-jobset.yaml": [
        ("--node_rank=$JOB_COMPLETION_INDEX", "--node_rank=0 --rdzv_backend=static"),
        ("{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 16, hugepages-2Mi: 5120Mi}\n                    limits",
         "{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 8, hugepages-2Mi: 5120Mi}\n                    limits"),
        ("--output_dir /fsx/run1", "--train_file /efs/c4.jsonl --output_dir /fsx/run1"),
        ("--nnodes=2", "--nnodes=4"),
        ("hostNetwork: true\n", "hostNetwork: true\n              tolerations: "
         "[{key: sagemaker.amazonaws.com/node-health-status, operator: Exists}]\n"),
    ],
    "../../../src/trainwright/check/examples/JOB016/good.torchtitan.sbatch": [
        ("--nproc_per_node=8", "--nproc_per_node=6"),
        ("#SBATCH --nodes=4", "#SBATCH --nodes=${NODES}"),
        ("-m torchtitan.train", "-m torchtitan.train --job.config_fiel x.toml") ,
        ("llama3-70b.toml", "llama3-70b.toml 2>&1 | tee train.log"),
    ],
    "../../../src/trainwright/check/examples/JOB016/good.pod.kubernetes.yaml": [
        ("nvidia.com/gpu: 8, vpc.amazonaws.com/efa: 4}\n                limits: {nvidia.com/gpu: 8",
         "nvidia.com/gpu: 4, vpc.amazonaws.com/efa: 4}\n                limits: {nvidia.com/gpu: 4"),
        ("replicas: 4", "replicas: 2"),
    ],
    "../../../src/trainwright/check/examples/JOB017/good.docker.sh": [
        ("/data/train", "/mnt/nvme/imagenet/train"),
        ("/data/train", "/fsx/imagenet"),
        (" --ipc=host", ""),
    ],
    "../../../src/trainwright/check/examples/JOB017/good.host.sbatch": [
        ("--data-path /data/", "--data-path /fsx/data/"),
        ("--save /checkpoints", "--save /fsx/checkpoints"),
    ],
    "../../../src/trainwright/check/examples/JOB018/good.kubernetes.yaml": [
        ("llama-trainer:v1.4", "llama-trainer:v1.5"),
        ("llama-trainer:v1.4", "llama-trainr:v1.4"),
        ("mountPath: /fsx", "mountPath: /workspace"),
    ],
    "../../../src/trainwright/check/examples/JOB018/good.sbatch": [("llama-trainer.sqsh", "llama-trainr.sqsh")],
    "../../../src/trainwright/check/examples/K8S004/good.kubernetes.yaml": [
        ("train-head:29500", "train-head:29400"),
        ("{port: 29500}", "{port: 29500, targetPort: 29501}"),
        ("completionMode: Indexed\n", "completionMode: Indexed\n  suspended: true\n"),
    ],
    "../../../src/trainwright/check/examples/K8S005/good.karpenter.yaml": [("g4dn, p4d", "g4dn, p4")],
    "../../../src/trainwright/check/examples/JOB009/good.submit.sbatch": [
        ('$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "$SLURM_SUBMIT_HOST"),
    ],
    "../../../src/trainwright/check/examples/JOB012/good.paths.sbatch": [("c4/validation", "c4/train")],
}  # fmt: skip


def _place(source: Path, folder: Path) -> Path:
    """Where a file is tried out, with the files beside it that belong to its job."""
    home = folder / f"{len(list(folder.iterdir()))}"
    home.mkdir()
    for one in source.parent.iterdir() if source.parent.parent.name == "examples" else ():
        if one.is_file() and not one.name.startswith(("good", "bad", "__")):
            shutil.copy(one, home)
    return home / source.name


def _said(path: Path) -> set[tuple[str, str]]:
    """What is said of a file, notes included: a reader sees them."""
    return {(finding.code, finding.message) for finding in check([str(path)]).findings}


def test_planted_mistakes_are_found(tmp_path: Path) -> None:
    missed, total = [], 0
    for name, edits in PLANTED.items():
        text = (FILES / name).read_text()
        path = _place(FILES / name, tmp_path)
        path.write_text(text)
        before = _said(path)
        for old, new in edits:
            assert old in text, f"{name}: {old}"
            path.write_text(text.replace(old, new, 1))
            total += 1
            if _said(path) <= before:
                missed.append(f"{name}: {new}")
    assert total >= 135
    assert len(missed) <= 0.05 * total, "\n".join([f"{total - len(missed)} of {total}", *missed])
