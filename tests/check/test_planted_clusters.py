"""Certain mistakes of cluster files that a stranger planted and `check` did not see, and right files beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import loud, shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]

PCLUSTER = """Region: us-east-1
Image: {{Os: alinux2023}}
HeadNode:
  InstanceType: m5.xlarge
  Networking: {{SubnetId: subnet-0123456789abcdef0}}
  Ssh: {{KeyName: me}}
  CustomActions: {{OnNodeConfigured: {{Script: "{script}"}}}}
Scheduling:
  Scheduler: slurm
  SlurmQueues:
    - Name: gpu
      Networking: {{SubnetIds: [subnet-0123456789abcdef0], PlacementGroup: {{Enabled: true}}}}
      ComputeResources:
        - Name: p5
          {types}
          MinCount: 0
          MaxCount: 2
          DisableSimultaneousMultithreading: {single}
          Efa: {{Enabled: true}}
          CustomSlurmSettings: {settings}
"""


def pcluster(
    script: str = "https://example.com/a.sh",
    settings: str = "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}",
    types: str = "InstanceType: p5.48xlarge",
    single: str = "false",
) -> str:
    return PCLUSTER.format(script=script, settings=settings, types=types, single=single)


@pytest.mark.parametrize(
    "script", ["file:///home/ec2-user/a.sh", "post_install.sh", "/fsx/a.sh", "http://a.example.com/b.sh", "s3://bucket"]
)
def test_parallelcluster_takes_scripts_by_https_and_s3_only(script: str, run: Run) -> None:
    """As UrlValidator of ParallelCluster 3.16 answers."""
    assert shown(run("c.yaml", pcluster(script), "CFG005")) == ["error CFG005 7"]


@pytest.mark.parametrize(
    "script",
    ["https://a.example.com/b.sh", "s3://bucket/b.sh", "HTTPS://a.example.com/b.sh", "${SCRIPT}", "<your-script>",
     "s3://bucket/${VERSION}/a.sh", "{{ script }}", "SCRIPT_URL"],
)  # fmt: skip
def test_right_addresses_and_placeholders_of_scripts(script: str, run: Run) -> None:
    assert not loud(run("c.yaml", pcluster(script), "CFG005"))


def test_a_script_in_a_sequence(run: Run) -> None:
    text = pcluster().replace('{Script: "https://example.com/a.sh"}', "{Sequence: [{Script: scripts/a.sh}]}")
    assert shown(run("c.yaml", text, "CFG005")) == ["error CFG005 7"]


SIZES = {
    "{Sockets: 2, CoresPerSocket: 24, ThreadsPerCore: 2}": ["warning SLU003 20"],  # p4d's
    "{Sockets: 2, CoresPerSocket: 96, ThreadsPerCore: 2}": ["warning SLU003 20"],
    "{Sockets: 2, CoresPerSocket: 40, ThreadsPerCore: 2}": ["warning SLU003 20"],
    '{Sockets: "4", CoresPerSocket: "48", ThreadsPerCore: "2"}': ["warning SLU003 20"],
    "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}": [],
    "{Sockets: 2, CoresPerSocket: 96, ThreadsPerCore: 1}": [],
    "{Sockets: 192, CoresPerSocket: 1}": [],
    "{Sockets: 2, CoresPerSocket: 48}": [],  # one CPU per core may be meant
    "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 1}": [],
    "{Sockets: 2, CoresPerSocket: $CORES, ThreadsPerCore: 2}": [],
    "{Boards: 2, CoresPerSocket: 48, ThreadsPerCore: 2, Sockets: 1}": [],
}


@pytest.mark.parametrize("settings", SIZES)
def test_sockets_cores_and_threads_make_the_cpus_of_the_instance(settings: str, run: Run) -> None:
    assert shown(run("c.yaml", pcluster(settings=settings), "SLU003")) == SIZES[settings]


def test_one_thread_per_core_halves_the_cpus(run: Run) -> None:
    right, wrong = "{Sockets: 2, CoresPerSocket: 48}", "{Sockets: 2, CoresPerSocket: 48, ThreadsPerCore: 2}"
    assert not run("c.yaml", pcluster(settings=right, single="true"), "SLU003")
    # CPUs=96 is the number of cores, which Slurm accepts
    assert not run("c.yaml", pcluster(settings=wrong, single="true"), "SLU003")


def test_several_types_of_a_resource_are_left_alone(run: Run) -> None:
    types = "Instances: [{InstanceType: p5.48xlarge}, {InstanceType: p4d.24xlarge}]"
    settings = "{Sockets: 2, CoresPerSocket: 12, ThreadsPerCore: 2}"
    assert not loud(run("c.yaml", pcluster(settings=settings, types=types), "SLU003"))
