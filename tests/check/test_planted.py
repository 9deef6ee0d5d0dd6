"""Mistakes planted one at a time into files that are right: at least 95 % must be reported. The list was written from
what goes wrong in practice, not from the list of rules."""

from __future__ import annotations

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
    ],
}  # fmt: skip


def test_planted_mistakes_are_found(tmp_path: Path) -> None:
    missed, total = [], 0
    for name, edits in PLANTED.items():
        text = (FILES / name).read_text()
        path = tmp_path / Path(name).name
        for old, new in edits:
            assert old in text, f"{name}: {old}"
            path.write_text(text.replace(old, new, 1))
            total += 1
            if not [f for f in check([str(path)]).findings if f.level != "info"]:
                missed.append(f"{name}: {new}")
    assert total >= 88
    assert len(missed) <= 0.05 * total, "\n".join([f"{total - len(missed)} of {total}", *missed])
