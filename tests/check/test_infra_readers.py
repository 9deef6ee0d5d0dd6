"""What readers make of files: references, conditions and parameters of CloudFormation, siblings of HyperPod, base files
of a spec, each value at the place where it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import Selection, check
from trainwright.check.model import File, known
from trainwright.check.readers.recognise import read_file
from trainwright.check.rules.net import efa_group_reaches_itself

EXAMPLES = Path(__file__).parents[2] / "src/trainwright/check/examples"


def read(text: str, name: str = "file.yaml") -> File:
    file = read_file(name, text)
    assert file is not None
    return file


def test_a_reference_reads_as_the_default_of_its_parameter() -> None:
    file = read(
        """
Parameters:
  Size: {Type: Number, Default: 2400}
  Rate: {Type: Number}
  Image: {Type: "AWS::SSM::Parameter::Value<String>", Default: /aws/service/ami}
Resources:
  Data:
    Type: AWS::FSx::FileSystem
    Properties:
      FileSystemType: LUSTRE
      StorageCapacity: !Ref Size
      LustreConfiguration: {DeploymentType: PERSISTENT_2, PerUnitStorageThroughput: !Ref Rate}
  Nodes:
    Type: AWS::EC2::LaunchTemplate
    Properties: {LaunchTemplateData: {InstanceType: !Ref Image}}
"""
    )
    storage = file.storages[0]
    assert storage.capacity_gib is not None
    assert (known(storage.capacity_gib), storage.capacity_gib.span.line) == (2400.0, 3)
    assert storage.throughput is not None
    assert known(storage.throughput) is None, "stated, but the file does not say how much"
    assert known(file.launch_templates[0].instance) is None, "the default of an SSM parameter is a path"


def test_json_and_yaml_forms_of_a_group_read_the_same() -> None:
    short = read(
        """
Resources:
  G: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: x}}
  In:
    Type: AWS::EC2::SecurityGroupIngress
    Properties: {GroupId: !GetAtt G.GroupId, IpProtocol: -1, SourceSecurityGroupId: !Ref G}
"""
    )
    long = read(
        """{"Resources": {
  "G": {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "x"}},
  "In": {"Type": "AWS::EC2::SecurityGroupIngress", "Properties": {
    "GroupId": {"Fn::GetAtt": ["G", "GroupId"]}, "IpProtocol": "-1", "SourceSecurityGroupId": {"Ref": "G"}}}}}"""
    )
    for file in (short, long):
        [rule] = file.security_groups[0].ingress
        assert (rule.itself, known(rule.protocol)) == (True, "-1")


def test_a_rule_of_a_chosen_group_belongs_to_it() -> None:
    file = read(
        """
Resources:
  Efa: {Type: AWS::EC2::SecurityGroup, Properties: {GroupDescription: EFA}}
  In:
    Type: AWS::EC2::SecurityGroupIngress
    Properties: {GroupId: !If [New, !Ref Efa, sg-1], IpProtocol: -1, SourceSecurityGroupId: !If [New, !Ref Efa, sg-1]}
"""
    )
    assert [rule.itself for rule in file.security_groups[0].ingress] == [True]


@pytest.mark.parametrize(
    ("description", "id", "efa"),
    [
        ("Default group", "Default", False),
        ("DEFAULT", "Group", False),
        ("all traffic inside the group, as Glue wants it", "Glue", False),
        ("EFA nodes", "Group", True),
        ("nodes with efa", "Group", True),
        ("nodes", "EFASecurityGroup", True),
        ("nodes", "NodesEfa", True),
    ],
)
def test_only_groups_of_efa_nodes_are_held_to_efa(description: str, id: str, efa: bool) -> None:
    file = read(
        f"""
Resources:
  {id}: {{Type: AWS::EC2::SecurityGroup, Properties: {{GroupDescription: "{description}"}}}}
  In:
    Type: AWS::EC2::SecurityGroupIngress
    Properties: {{GroupId: !Ref {id}, IpProtocol: -1, SourceSecurityGroupId: !Ref {id}}}
"""
    )
    assert ("efa" in file.security_groups[0].uses) is efa
    assert len(list(efa_group_reaches_itself(file))) == (1 if efa else 0)


def test_a_compute_environment_knows_its_launch_template() -> None:
    file = read(
        """
Resources:
  Nodes:
    Type: AWS::EC2::LaunchTemplate
    Properties:
      LaunchTemplateData:
        InstanceMarketOptions: {MarketType: capacity-block}
        NetworkInterfaces: [{NetworkCardIndex: 0, InterfaceType: efa}]
  Environment:
    Type: AWS::Batch::ComputeEnvironment
    Properties:
      ComputeResources:
        InstanceTypes: [p5.48xlarge]
        MaxvCpus: 768
        LaunchTemplate: {LaunchTemplateId: !Ref Nodes}
  Job:
    Type: AWS::Batch::JobDefinition
    Properties:
      NodeProperties:
        NumNodes: 2
        NodeRangeProperties:
          - Container:
              Image: train:1.0
              ResourceRequirements: [{Type: GPU, Value: "8"}]
              LinuxParameters: {SharedMemorySize: 4096, Devices: [{HostPath: /dev/infiniband/uverbs0}]}
              Ulimits: [{Name: memlock, HardLimit: -1, SoftLimit: -1}]
"""
    )
    [cluster], [job] = file.clusters, file.jobs
    queue = cluster.queues[0]
    assert (known(queue.capacity), known(queue.efa), known(queue.extra["max_vcpus"])) == ("block", True, 768)
    assert known(file.launch_templates[0].instance) == "p5.48xlarge", "the environment names the type"
    assert (known(job.nodes), [v.value for v in job.gpus_per_node], [v.value for v in job.efa_per_node]) == (
        2,
        [8],
        [1],
    )
    assert (known(job.extra["shm_mib"]), known(job.extra["ulimit_memlock"])) == (4096, -1)
    assert job.queue is queue


def test_hyperpod_files_know_each_other(tmp_path: Path) -> None:
    for path in (EXAMPLES / "HYP001" / "good.pair").iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    config, provisioning = tmp_path / "cluster-config.json", tmp_path / "provisioning_parameters.json"
    for path, other in ((config, "provisioning"), (provisioning, "cluster-config")):
        assert set(read(path.read_text(), str(path)).siblings) == {other}
    provisioning.write_text(provisioning.read_text().replace("worker-group-1", "worker-group-9"))
    for path in (config, provisioning):
        assert [f.code for f in check([str(path)]).findings] == ["HYP001"], f"seen from {path.name}"
    provisioning.write_text("{")
    assert check([str(config)]).findings == [], "a sibling that cannot be read is no reason to fail"


def test_what_a_base_file_brings_in_is_reported_in_that_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "name: a\nplatform: parallelcluster\nregion: us-east-2\n"
        "queues:\n  - {name: BAD, instance: p5.48xlarge, count: 2}\n"
    )
    over = tmp_path / "over.yaml"
    over.write_text("name: b_b\n\nextends: base.yaml\n")
    result = check([str(over)])
    base = str(tmp_path / "base.yaml")
    places = [(f.code, f.file, f.span.line, f.span.column) for f in result.findings]
    assert places == [("CFG003", base, 5, 12), ("CFG002", str(over), 1, 7)]
    assert "name: BAD" in result.texts[base], "the excerpt is the base file's"


def test_a_spec_of_the_wrong_shape_gives_every_mistake_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: a\nplatform: parallelclusters\nqueues:\n  - {name: q, instnce: p5.48xlarge}\n")
    found = check([str(path)]).findings
    assert [(f.code, f.span.line) for f in found] == [("TW002", 2), ("TW002", 4)]
    assert "instance" in found[1].fix


@pytest.mark.parametrize(
    ("written", "gib"), [("1.2TiB", 1200), ("4.8TiB", 4800), ("1200GiB", 1200), ("2.4TB", 2400), ("38.4TiB", 38400)]
)
def test_lustre_sizes_are_read_as_fsx_sells_them(written: str, gib: int) -> None:
    file = read(
        "name: a\nplatform: parallelcluster\nqueues: [{name: q, instance: c5.large}]\n"
        f"storage: [{{mount: /fsx, lustre: {{capacity: {written}}}}}]\n"
    )
    size = file.clusters[0].storages[0].capacity_gib
    assert known(size) == gib


def test_placeholders_silence_the_rules_that_need_the_value() -> None:
    template = EXAMPLES / "NET001" / "good.parallelcluster.yaml"
    text = template.read_text()
    for value in ("p5.48xlarge", "true", "4"):
        changed = text.replace(f" {value}\n", " ${VALUE}\n").replace(f": {value}}}", ': "${VALUE}"}')
        found = {f.code for rule in ("CAP", "NET", "STO", "SLU") for f in _select(changed, rule)}
        assert found == set(), f"{value}: {found}"


def _select(text: str, prefix: str) -> list[object]:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as out:
        out.write(text)
        out.flush()
        return list(check([out.name], Selection((prefix,))).findings)
