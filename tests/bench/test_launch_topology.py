"""Launches of nccl-tests that their schedulers accept, and host orders that follow the network."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from trainwright.bench.topology import Place, host_file, read_places, topology_conf
from trainwright.cli.bench import command
from trainwright.errors import UserError


def launch(scheduler: str, *words: str) -> str:
    options = ["--instance", "p5.48xlarge", "--nodes", "4", "--image", "example.com/nccl-tests:1", *words]
    done = CliRunner().invoke(command, ["nccl-tests", "--scheduler", scheduler, *options])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_slurm_script_is_clean_shell_with_one_task_per_gpu(tmp_path: Path) -> None:
    script = launch("slurm", "--op", "alltoall")
    assert "#SBATCH --ntasks-per-node=8" in script
    assert "/opt/nccl-tests/build/alltoall_perf -b 8 -e 16G" in script
    assert "export FI_PROVIDER" not in script or "FI_PROVIDER=efa" in script
    path = tmp_path / "job.sh"
    path.write_text(script)
    done = subprocess.run(["shellcheck", "-S", "warning", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_mpi_job_asks_for_every_card_and_gpu() -> None:
    job = json.loads(launch("kubernetes"))
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]
    limits = worker["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert worker["replicas"] == 4
    assert (limits["nvidia.com/gpu"], limits["vpc.amazonaws.com/efa"]) == (8, 32)
    command = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["command"]
    assert command[command.index("-np") + 1] == "32"
    assert "NCCL_SOCKET_IFNAME=eth" in command  # a pod's own card, whatever the node's is called


def test_the_batch_definition_is_what_the_api_takes() -> None:
    """Against botocore's own model of RegisterJobDefinition."""
    import botocore.session
    from botocore.validate import ParamValidator

    definition = json.loads(launch("batch"))
    shape = botocore.session.get_session().get_service_model("batch").operation_model("RegisterJobDefinition")
    report = ParamValidator().validate(definition, shape.input_shape)
    assert not report.has_errors(), report.generate_report()
    container = definition["nodeProperties"]["nodeRangeProperties"][0]["container"]
    assert len(container["linuxParameters"]["devices"]) == 32


def test_a_machine_without_gpus_is_refused() -> None:
    done = CliRunner().invoke(command, ["nccl-tests", "--instance", "trn1.32xlarge", "--image", "x"])
    assert done.exit_code != 0
    assert "nccom-test" in getattr(done.exception, "fix", "")


@pytest.fixture
def answer(tmp_path: Path) -> Path:
    """Six instances under three lowest network nodes, two of which share a middle one, in EC2's unsorted order."""
    above = {"i-1": ("t", "m1", "l1"), "i-2": ("t", "m2", "l3"), "i-3": ("t", "m1", "l2")}
    above |= {"i-4": ("t", "m1", "l1"), "i-5": ("t", "m2", "l3"), "i-6": ("t", "m1", "l2")}
    rows = [
        {"InstanceId": i, "InstanceType": "p5.48xlarge", "NetworkNodes": [f"nn-{n}" for n in nodes]}
        for i, nodes in above.items()
    ]
    path = tmp_path / "topology.json"
    path.write_text(json.dumps({"Instances": rows}))
    return path


def test_hosts_under_one_network_node_follow_one_another(answer: Path, tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("".join(f"i-{n} p5-{n}\n" for n in range(1, 7)))
    files = ["--hostfile", str(tmp_path / "hosts"), "--conf", str(tmp_path / "topology.conf")]
    done = CliRunner().invoke(command, ["topology", str(answer), "--names", str(names), *files])
    assert done.exit_code == 0, done.output
    hosts = [line.split()[0] for line in (tmp_path / "hosts").read_text().splitlines()]
    assert hosts == ["p5-1", "p5-4", "p5-3", "p5-6", "p5-2", "p5-5"]
    conf = (tmp_path / "topology.conf").read_text().splitlines()
    assert "SwitchName=nn-l1 Nodes=p5-1,p5-4" in conf
    assert "SwitchName=nn-m1 Switches=nn-l1,nn-l2" in conf
    assert conf[-1] == "SwitchName=nn-t Switches=nn-m1,nn-m2"
    assert "3 lowest network nodes" in done.stderr


def test_separate_trees_get_a_root() -> None:
    places = [Place("a", ("t1", "m1", "l1")), Place("b", ("t2", "m2", "l2"))]
    assert topology_conf(places).splitlines()[-1] == "SwitchName=root Switches=t1,t2"
    assert host_file(places, 0) == "a\nb\n"


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    done = CliRunner().invoke(command, ["topology", str(tmp_path / "x.json")])
    assert "DescribeInstanceTopology" in str(done.exception)


@pytest.mark.parametrize(
    "row",
    [
        None,
        {"InstanceId": "i-1", "NetworkNodes": []},
        {"InstanceId": "i-1", "NetworkNodes": "nn-1"},
        {"InstanceId": 1, "NetworkNodes": ["nn-1"]},
        {"InstanceId": "i-1\nNodeName=all State=DOWN", "NetworkNodes": ["nn-1"]},
        {"InstanceId": "i-1", "NetworkNodes": ["nn-1 Nodes=all"]},
    ],
)
def test_an_answer_that_would_write_a_wrong_configuration_is_refused(tmp_path: Path, row: object) -> None:
    (tmp_path / "answer").write_text(json.dumps({"Instances": [row] if row else []}))
    with pytest.raises(UserError):
        read_places(tmp_path / "answer", {})
