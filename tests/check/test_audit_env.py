"""ENV rules near their triggers: what a file says on purpose, or does not decide, is silent or a note."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
BLOCKING = "export CUDA_LAUNCH_BLOCKING=1\n"
TORCHRUN = "torchrun --nproc_per_node=8 train.py\n"


@pytest.mark.parametrize(
    "lines",
    [
        f"{BLOCKING}python -c 'import torch'\nexport CUDA_LAUNCH_BLOCKING=0\n{TORCHRUN}",
        f"{BLOCKING}unset CUDA_LAUNCH_BLOCKING\n{TORCHRUN}",
        f"# 调试用\n{BLOCKING}{TORCHRUN}",
        f"export CUDA_LAUNCH_BLOCKING=1 # to see where the error is\n{TORCHRUN}",
        f"### debugging\n\n{BLOCKING}{TORCHRUN}",
        f"export NCCL_DEBUG=INFO  # debug\n{BLOCKING}{TORCHRUN}",
        f"# TODO: remove once the illegal memory access is found\n{BLOCKING}{TORCHRUN}",
        f"#PBS -q debug\n\n{BLOCKING}{TORCHRUN}",
        f'[ "$DEBUG" = 1 ] && {BLOCKING}{TORCHRUN}',
        f'if [ "$DEBUG" = 1 ]; then export CUDA_LAUNCH_BLOCKING=1; fi\n{TORCHRUN}',
        f"[[ -n $SLOW ]] && {{ export A=1; export CUDA_LAUNCH_BLOCKING=1; }}\n{TORCHRUN}",
        f"[[ -n $SLOW ]] && {{\n  {BLOCKING}}}\n{TORCHRUN}",
        f"$SLOW && \\\n  {BLOCKING}{TORCHRUN}",
        f'debug_run() {{\n  {BLOCKING}  python train.py\n}}\n"$@"\n',
        f'slow() {{\n  {BLOCKING}  python train.py\n}}\n"$@"\n',  # the caller names the function
        f"slow() {{ CUDA_LAUNCH_BLOCKING=1 python train.py; }}\n{TORCHRUN}",
        "CUDA_LAUNCH_BLOCKING=1 python train.py --max_steps 3\n",
        f"export CUDA_LAUNCH_BLOCKING=${{CUDA_LAUNCH_BLOCKING:-1}}\n{TORCHRUN}",
        f"{BLOCKING}pytest tests\n",
        f"{BLOCKING}echo 'debug mode'\n{TORCHRUN}",
        "CUDA_LAUNCH_BLOCKING=1 compute-sanitizer python train.py\n",
        "CUDA_LAUNCH_BLOCKING=1 python -m pdb train.py\n",
        "CUDA_LAUNCH_BLOCKING=1 python train.py --debug\n",
        "CUDA_LAUNCH_BLOCKING=1 python train.py trainer.fast_dev_run=true\n",
        "CUDA_LAUNCH_BLOCKING=1 torchrun --nproc_per_node 6 train.py --debug_mode True\n",
        "CUDA_LAUNCH_BLOCKING=1 python -c 'import torch'\n",
        f"{BLOCKING}python benchmark.py\n",
        f"{BLOCKING}nsys profile -o out python train.py\n",
        "CUDA_LAUNCH_BLOCKING=1 python -c 'import torch'\n" + TORCHRUN,
        f"export NCCL_DEBUG_SUBSYS=ALL\n{TORCHRUN}",
        f"export NCCL_DEBUG=WARN NCCL_DEBUG_SUBSYS=ALL\n{TORCHRUN}",
        f"export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL NCCL_DEBUG_FILE=/tmp/nccl.%h\n{TORCHRUN}",
        f"export NCCL_DEBUG=TRACE\nCUDA_VISIBLE_DEVICES=0 {TORCHRUN}",
        f"export TORCH_NCCL_ASYNC_ERROR_HANDLING=0\n{TORCHRUN}",
        f"{BLOCKING}",  # another script sources it
    ],
)
def test_debugging_on_purpose_is_no_leftover(run: Run, lines: str) -> None:
    assert loud(run("a.sh", f"#!/bin/bash\n{lines}", "ENV002")) == []


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (f"{BLOCKING}{TORCHRUN}", 2),
        (f"{BLOCKING}{TORCHRUN}unset CUDA_LAUNCH_BLOCKING\n", 2),
        (f"# asynchronous launches for performance\n{BLOCKING}{TORCHRUN}", 3),
        (f"for seed in 1 2; do\n  CUDA_LAUNCH_BLOCKING=1 {TORCHRUN}done\n", 3),
        (f"train() {{\n  {BLOCKING}  {TORCHRUN}}}\ntrain\n", 3),
        (f"mkdir -p logs && {BLOCKING}{TORCHRUN}", 2),
        (f"[ -d logs ] || mkdir logs; {BLOCKING}{TORCHRUN}", 2),
        (f"{BLOCKING}python train.py\npython test.py\n", 2),
        (f"{BLOCKING}bash scripts/train.sh\n", 2),
        ("CUDA_LAUNCH_BLOCKING=1 \\\nNCCL_DEBUG=WARN \\\npython evaluate.py\n", 2),
        (f"export NCCL_DEBUG=info\nexport NCCL_DEBUG_SUBSYS=all\n{TORCHRUN}", 3),
        (f"export NCCL_DEBUG=TRACE\n{TORCHRUN}", 2),
    ],
)
def test_a_leftover_of_debugging_is_reported(run: Run, lines: str, line: int) -> None:
    assert shown(run("a.sh", f"#!/bin/bash\n{lines}", "ENV002")) == [f"warning ENV002 {line}"]


@pytest.mark.parametrize("name", ["run_debug.sh", "debug/run.sh", "smoke-test.sh", "benchmarks/a.sh"])
def test_the_name_of_a_file_says_that_it_debugs(run: Run, name: str) -> None:
    assert run(name, f"#!/bin/bash\n{BLOCKING}{TORCHRUN}", "ENV002") == []


@pytest.mark.parametrize(
    ("directive", "count"),
    [
        ("--partition=gputest", 0),
        ("--qos=gpu_debug", 0),
        ("--qos=boost_qos_dbg", 0),
        ("--time=00:10:00", 0),
        ("--time=10", 0),
        ("--time=0-00:05", 0),
        ("--time=10:00:00", 1),
        ("--time=1-00:10", 1),
        ("--partition=gpu", 1),
    ],
)
def test_a_short_job_or_one_in_a_queue_for_tests_may_debug(run: Run, directive: str, count: int) -> None:
    job = f"#!/bin/bash\n#SBATCH {directive}\n{BLOCKING}srun {TORCHRUN}"
    assert len(loud(run("a.sbatch", job, "ENV002"))) == count


def test_what_a_build_exports_ends_with_it(run: Run) -> None:
    image = "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n{}\nRUN pip install torch\n"
    assert (
        run("Dockerfile", image.format("RUN export CUDA_LAUNCH_BLOCKING=1 && python setup.py install"), "ENV002") == []
    )
    # Who uses the image starts what it is for.
    assert shown(run("Dockerfile", image.format("ENV CUDA_LAUNCH_BLOCKING=1"), "ENV002")) == ["info ENV002 2"]


POD = """apiVersion: {api}
kind: {kind}
metadata: {{name: a}}
spec:
  template:
    metadata: {{annotations: {{{annotation}}}}}
    spec:
      hostNetwork: {host}
      containers:
      - name: a
        image: b:1
        command: [{command}]
        env: [{{name: {name}, value: "{value}"}}]
        resources: {{limits: {{nvidia.com/gpu: 8, {resource}}}}}
"""


def pod(name: str, value: str, **given: str) -> str:
    usual = {"api": "batch/v1", "kind": "Job", "annotation": "a: b", "host": "false", "command": "torchrun, train.py"}
    return POD.format(name=name, value=value, **{**usual, "resource": "cpu: 8", **given})


def test_a_notebook_may_wait_for_every_kernel(run: Run) -> None:
    given = {"kind": "StatefulSet", "api": "apps/v1", "command": "jupyter, lab"}
    assert loud(run("a.yaml", pod("CUDA_LAUNCH_BLOCKING", "1", **given), "ENV002")) == []
    assert loud(run("b.yaml", pod("CUDA_LAUNCH_BLOCKING", "1"), "ENV002")) == ["warning ENV002 13"]


YAML_ENV = """        env:
        - name: CUDA_LAUNCH_BLOCKING{}
          value: "1"{}
        resources:"""


@pytest.mark.parametrize(
    ("first", "second"), [("  # for debugging", ""), ("", "  # to find the error"), ("", "  # on")]
)
def test_a_comment_in_yaml_gives_a_reason(run: Run, first: str, second: str) -> None:
    head, _, rest = pod("A", "1").partition("        env:")
    text = head + YAML_ENV.format(first, second) + rest.partition("        resources:")[2]
    assert loud(run("a.yaml", text, "ENV002")) == (["warning ENV002 15"] if second.endswith("on") else [])


@pytest.mark.parametrize(
    ("value", "given", "level"),
    [
        ("ens5", {}, "error"),
        ("^docker,lo,eth", {}, "error"),
        ("eth", {}, ""),
        ("net1", {"annotation": "k8s.v1.cni.cncf.io/networks: roce"}, "info"),
        ("ib0", {"resource": "rdma/ib: 1"}, "info"),
        ("ens5", {"host": "{{ .Values.hostNetwork }}"}, "info"),
        ("ens5", {"host": "true"}, ""),
    ],
)
def test_the_interfaces_of_a_pod(run: Run, value: str, given: dict[str, str], level: str) -> None:
    findings = run("a.yaml", pod("NCCL_SOCKET_IFNAME", value, **given), "ENV003")
    assert shown(findings) == ([f"{level} ENV003 13"] if level else [])


def test_pods_that_do_not_work_together_may_use_loopback(run: Run) -> None:
    several = pod("NCCL_SOCKET_IFNAME", "lo").replace("spec:\n", "spec:\n  parallelism: 4\n", 1)
    assert run("a.yaml", several.replace("torchrun, train.py", "torchrun, --standalone, train.py"), "ENV003") == []
    server = several.replace("Job", "Deployment").replace("batch/v1", "apps/v1").replace("parallelism", "replicas")
    assert run("b.yaml", server.replace("torchrun, train.py", "vllm, serve"), "ENV003") == []


LO = "#!/bin/bash\n#SBATCH --nodes=2\n{}srun torchrun {}--nproc_per_node=4 train.py\n"


@pytest.mark.parametrize(
    ("lines", "option", "expected"),
    [
        ("export NCCL_SOCKET_IFNAME=lo\n", "--nnodes=2 ", ["error ENV003 3"]),
        ("export NCCL_SOCKET_IFNAME=lo\n", "--standalone ", []),
        ("export NCCL_SOCKET_IFNAME=lo\nexport NCCL_SOCKET_IFNAME=ib0\n", "--nnodes=2 ", []),
        ("[ $SLURM_NNODES -eq 1 ] && export NCCL_SOCKET_IFNAME=lo\n", "--nnodes=2 ", ["info ENV003 3"]),
        ("export NCCL_SOCKET_IFNAME=${IFNAME:-lo}\n", "--nnodes=2 ", ["info ENV003 3"]),
    ],
)
def test_loopback_between_nodes(run: Run, lines: str, option: str, expected: list[str]) -> None:
    assert shown(run("a.sbatch", LO.format(lines, option), "ENV003")) == expected


def test_a_container_has_interfaces_of_its_own(run: Run) -> None:
    text = "#!/bin/bash\n# p4d.24xlarge\ncd /home/ubuntu\n"
    text += "docker run --gpus all {}-e NCCL_SOCKET_IFNAME=eth0 img:1 torchrun --nproc_per_node=8 train.py\n"
    assert run("a.sh", text.format(""), "ENV003") == []
    assert shown(run("b.sh", text.format("--network host "), "ENV003")) == ["error ENV003 4"]


TWO_NODES = "#!/bin/bash\n{}torchrun --nnodes=2 --nproc_per_node=8 train.py\n"


@pytest.mark.parametrize(
    ("lines", "level"),
    [
        ("# p5.48xlarge\nexport NCCL_P2P_DISABLE=1\n", "error"),
        ("# p5.48xlarge\nexport NCCL_P2P_DISABLE=1\nunset NCCL_P2P_DISABLE\n", ""),
        ("# p5.48xlarge\nexport NCCL_P2P_DISABLE=${P2P:-1}\n", "info"),
        ("# p5.48xlarge\n# workaround: hangs otherwise\nexport NCCL_P2P_DISABLE=1\n", "info"),
        ("# p4d.24xlarge, and a workstation with RTX 3090\nexport NCCL_P2P_DISABLE=1\n", "info"),
        ("# p5.48xlarge\nexport NCCL_P2P_DISABLE=1\nmpirun ./all_reduce_perf -e 1G\n", "info"),
        ("export FI_PROVIDER=efa\nexport NCCL_NET=Socket\n", "error"),
        ("# p4d.24xlarge\nexport NCCL_NET=Socket\n", "info"),  # EFA may be off
        ("export FI_EFA_USE_HUGE_PAGE=0\n[ $TCP = 1 ] && export NCCL_NET=Socket\n", "info"),
        ("export FI_EFA_USE_HUGE_PAGE=0\n# TCP to compare with\nexport NCCL_NET=Socket\n", "info"),
        ("export FI_EFA_USE_HUGE_PAGE=0\nrun_tcp() { NCCL_NET=Socket srun a; }\n", "info"),
        ("# p5.48xlarge\n\n# P2P is broken in this driver\nexport A=1\nexport NCCL_P2P_DISABLE=1\n", "info"),
        ("export FI_EFA_USE_HUGE_PAGE=0\nexport NCCL_NET_GDR_LEVEL=0\n", "info"),
        ("export OFI_NCCL_DISABLE_DMABUF=1\nexport NCCL_NET_GDR_LEVEL=0\n", "info"),  # Slingshot too
        ("export RDMAV_DRIVERS=mlx5\nexport RDMAV_FAKE=1\n", ""),  # old versions read it
        ("export RDMAV_HUGEPAGE_SAFE=1\n", "warning"),
    ],
)
def test_what_costs_bandwidth_may_be_meant(run: Run, lines: str, level: str) -> None:
    findings = [one for one in run("a.sh", TWO_NODES.format(lines), "ENV001") if "FI_PROVIDER" not in one.message]
    assert [one.level for one in findings] == ([level] if level else [])


def test_one_node_needs_no_network(run: Run) -> None:
    text = "#!/bin/bash\nexport FI_PROVIDER=efa NCCL_NET=Socket\ntorchrun --standalone --nproc_per_node=8 train.py\n"
    assert loud(run("a.sh", text, "ENV001")) == []


def test_a_forced_protocol_is_one_note(run: Run) -> None:
    image = "FROM a:1\nENV EFA_INSTALLER_VERSION=1.30.0 OFI_NCCL_VERSION=1.7.4\nENV NCCL_PROTO=simple\n# nccl\n"
    assert shown(run("Dockerfile", image, "ENV001", "ENV002")) == ["info ENV001 3"]


@pytest.mark.parametrize(
    ("type_", "line", "count"),
    [
        ("g5.12xlarge", 'ENV TORCH_CUDA_ARCH_LIST="8.0"', 0),  # 8.6 runs it
        ("p4d.24xlarge", 'ENV TORCH_CUDA_ARCH_LIST="8.6"', 1),
        ("p4d.24xlarge", 'ENV TORCH_CUDA_ARCH_LIST="Ampere"', 0),
        ("p5.48xlarge", 'ENV TORCH_CUDA_ARCH_LIST="All"', 0),
        ("p5.48xlarge", 'ENV TORCH_CUDA_ARCH_LIST="8.0+PTX"', 0),
        ("p5.48xlarge", 'ENV TORCH_CUDA_ARCH_LIST="9.0a"', 0),
        ("p5.48xlarge", 'ENV TORCH_CUDA_ARCH_LIST="7.0;8.0;8.6"', 1),
        ("g5.12xlarge", 'ENV NVCC_GENCODE="-gencode=arch=compute_80,code=sm_80"', 0),
        ("p5.48xlarge", 'ENV NVCC_GENCODE="-gencode=arch=compute_80,code=[sm_80,compute_80]"', 0),
        ("p5.48xlarge", 'ENV NVCC_GENCODE="-gencode=arch=compute_80,code=sm_80"', 1),
        ("p5.48xlarge", "RUN pip install torch==2.0.1+cu118", 0),
        ("p5.48xlarge", "RUN pip install torch==1.13.1", 1),
    ],
)
def test_code_for_another_gpu(run: Run, type_: str, line: str, count: int) -> None:
    image = f"# for {type_}\nFROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n{line}\n"
    assert loud(run("Dockerfile", image, "ENV004")) == ["error ENV004 3"] * count


def test_versions_of_an_image_are_one_finding(run: Run) -> None:
    image = "# for {}\nFROM {}\nRUN pip install transformers\n"
    old = image.format("p6-b200.48xlarge", "pytorch/pytorch:2.6.0-cuda12.6-cudnn9-devel")
    assert shown(run("Dockerfile", old, "ENV004")) == ["error ENV004 2"]
    # sm_90 arrived with CUDA 11.8; what is only recommended is a note.
    hopper = image.format("p5.48xlarge", "nvidia/cuda:11.8.0-devel-ubuntu22.04")
    assert shown(run("Dockerfile", hopper, "ENV004")) == ["info ENV004 2"]


ADAPTERS = "export NCCL_IB_DISABLE=1\nexport NCCL_IB_HCA=mlx5_0,mlx5_1\n"
HEAD = "#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n"


@pytest.mark.parametrize(
    ("nodes", "lines", "expected"),
    [
        (4, ADAPTERS, ["info ENV002 5"]),
        (1, ADAPTERS, ["info ENV002 5"]),
        (4, "# InfiniBand hangs here\n" + ADAPTERS, ["info ENV002 6"]),
        (4, ADAPTERS.replace("DISABLE=1", "DISABLE=0"), []),
        (4, ADAPTERS.replace("DISABLE=1", "DISABLE=${NO_IB:-1}"), []),
        (4, ADAPTERS + "export NCCL_IB_DISABLE=0\n", []),
        (4, "export NCCL_IB_DISABLE=1\nexport NCCL_IB_GID_INDEX=3\n", []),
        (4, "if [ -z $IB ]; then\nexport NCCL_IB_DISABLE=1\nfi\nexport NCCL_IB_HCA=mlx5\n", []),
        (4, "export NCCL_IB_DISABLE=1\nif [ -n $IB ]; then\nexport NCCL_IB_HCA=mlx5\nfi\n", []),
    ],
)
def test_adapters_that_are_named_and_turned_off(run: Run, nodes: int, lines: str, expected: list[str]) -> None:
    text = f"{HEAD.format(nodes=nodes)}{lines}srun python train.py\n"
    assert shown([f for f in run("a.sbatch", text, "ENV002") if "NCCL_IB" in f.message]) == expected


MPI_JOB = """apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {{name: bert-mpi}}
spec:
  slotsPerWorker: 8
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
            - name: launcher
              image: example/bert:2.1
              command:
                - mpirun
                {options}
                - python
                - /srv/bert.py
    Worker:
      replicas: {workers}
      template:
        spec:
          containers:
            - name: worker
              image: example/bert:2.1
              resources:
                limits: {{nvidia.com/gpu: 8, vpc.amazonaws.com/efa: {cards}, hugepages-2Mi: 5120Mi, memory: 500Gi}}
"""


def mpi_job(*options: str, workers: int = 3, cards: int = 4) -> str:
    return MPI_JOB.format(options="\n                ".join(options), workers=workers, cards=cards)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("- -x", "- FI_PROVIDER=tcp"), 16),
        (("- -np", '- "24"', "- -x", "- FI_PROVIDER=sockets"), 18),
        (("- -genv", "- FI_PROVIDER", "- tcp"), 17),
        (("- -x", "- NCCL_NET=Socket"), 16),
    ],
)
def test_a_launcher_without_a_shell_gives_variables(run: Run, options: tuple[str, ...], line: int) -> None:
    (finding,) = run("job.yaml", mpi_job(*options), "ENV001")
    assert (finding.level, finding.span.line) == ("error", line)
    assert finding.fix == f"remove it, and the {options[-3 if '-genv' in options[0] else -2][2:]} above it"
    assert not loud(run("job.yaml", mpi_job("# EFA hangs with this image", *options), "ENV001"))
    assert not loud(run("job.yaml", mpi_job(*options, workers=1), "ENV001"))
    assert not loud(run("job.yaml", mpi_job(*options, cards=0), "ENV001"))


@pytest.mark.parametrize(
    "options",
    [
        ("- -x", "- FI_PROVIDER=$(PROVIDER)"),
        ("- -x", "- FI_PROVIDER"),
        ("- -x", "- FI_PROVIDER=efa"),
        ("- -x", "- NCCL_DEBUG=WARN"),
        ("- --tag", "- FI_PROVIDER=tcp"),  # another option's value
    ],
)
def test_right_variables_of_a_launcher(run: Run, options: tuple[str, ...]) -> None:
    assert not loud(run("job.yaml", mpi_job(*options), "ENV001"))


def test_variables_that_srun_and_docker_give(run: Run) -> None:
    head = "#!/bin/bash\n#SBATCH --nodes=2\nexport FI_EFA_USE_HUGE_PAGE=0\n"
    for line, column in (("srun --export=ALL,FI_PROVIDER=tcp,A=1", 31), ("docker run --env=FI_PROVIDER=tcp image", 30)):
        (finding,) = run("a.sbatch", f"{head}{line} python train.py\n", "ENV001")
        assert (finding.level, finding.span.line, finding.span.column) == ("error", 4, column)
    assert not run("a.sbatch", f"{head}srun --export=ALL,OTHER_PROVIDER=tcp python train.py\n", "ENV001")
