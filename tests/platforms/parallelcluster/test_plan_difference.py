"""What a change means for a cluster that runs: each effect, from the table of update policies, and the bill's sums."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainwright.errors import UserError
from trainwright.platforms.apply.build import refuse_impossible
from trainwright.platforms.parallelcluster.updates import effect_of, policy_of
from trainwright.platforms.plan.difference import Difference, difference
from trainwright.platforms.plan.tree import earlier_files, make_plan, write
from trainwright.spec.load import load
from trainwright.stacks.library import template, template_names
from trainwright.stacks.updates import parameter_effect, parameter_effects

ROOT = Path(__file__).parents[3]
TRAIN = "Scheduling.SlurmQueues[train]"


def changed(*overrides: str, example: str = "p5-reservation") -> Difference:
    path = ROOT / "examples" / f"{example}.yaml"
    no_jobs = "jobs=[]"  # they would refuse a queue that is too small for them, which is not the point here
    return difference(make_plan(load(path, [no_jobs])).files, make_plan(load(path, [no_jobs, *overrides])).files)


def effects(difference: Difference) -> dict[str, str]:
    return {change.path or change.file: change.effect for change in difference.changes}


def test_the_same_spec_has_no_difference() -> None:
    assert changed() == Difference((), "")


@pytest.mark.parametrize(
    ("override", "path", "effect"),
    [
        ("queues.train.count=6", f"{TRAIN}.ComputeResources[p5-48xlarge].MinCount", "live"),
        ("queues.train.count=6", f"{TRAIN}.ComputeResources[p5-48xlarge].MaxCount", "live"),
        ("queues.train.count=2", f"{TRAIN}.ComputeResources[p5-48xlarge].MaxCount", "stop"),
        ("queues.train.root_volume=600GiB", f"{TRAIN}.ComputeSettings.LocalStorage.RootVolume.Size", "drain"),
        ("queues.train.placement=true", f"{TRAIN}.Networking.PlacementGroup.Enabled", "drain"),
        ("queues.train.name=big", TRAIN, "stop"),
        ("queues.train.name=big", "Scheduling.SlurmQueues[big]", "live"),
        ("head.instance=m5.4xlarge", "HeadNode.InstanceType", "replace"),
        ("head.ssh_from=203.0.113.0/24", "HeadNode.Ssh.AllowedIps", "live"),
        ("software.os=ubuntu2404", "Image.Os", "replace"),
        ("monitoring=true", "Monitoring.DetailedMonitoring", "stop"),
        ("tags={team: a}", "Tags[team]", "live"),
        ("storage.0.lustre.capacity=9.6TiB", "Capacity", "live"),
        ("storage.0.lustre.deployment=persistent-1", "DeploymentType", "replace"),
    ],
)  # fmt: skip
def test_effect_of_a_change(override: str, path: str, effect: str) -> None:
    overrides = [override]
    if "persistent-1" in override:
        overrides.append("storage.0.lustre.throughput=200")
    assert effects(changed(*overrides))[path] == effect


def test_a_queue_that_only_grows_its_floor_needs_a_stop() -> None:
    difference = changed("queues.train.count={min: 1, max: 4}", example="p4de-base")
    path = f"{TRAIN}.ComputeResources[p4de-24xlarge].MinCount"
    assert effects(difference) == {path: "stop"}
    assert difference.hardest == "stop"


def test_a_new_stack_is_listed_once_and_the_lines_are_shown() -> None:
    difference = changed("accounting=true", "network={more_zones: [use2-az1]}")
    assert effects(difference)["stacks/accounting.yaml"] == "live"
    assert effects(difference)["Zone2"] == "replace"
    assert "+    Database:" in difference.lines
    assert "--- a/cluster.yaml" in difference.lines


def test_every_parameter_of_every_template_has_its_effect() -> None:
    known = {(name, parameter) for name in template_names() for parameter in template(name).parameters}
    assert set(parameter_effects()) == known


@pytest.mark.parametrize(
    ("stack", "parameter", "old", "new", "effect", "words"),
    [
        ("lustre", "Capacity", "9600", "4800", "replace", "never shrinks"),
        ("lustre", "Capacity", "9600", "12000", "live", "6 hours"),
        ("openzfs", "Capacity", "1000", "900", "replace", "never shrinks"),
        ("openzfs", "Capacity", "1000", "1099", "replace", "to 1100 GiB at least"),
        ("openzfs", "Capacity", "1000", "1100", "live", "6 hours"),
        ("eks-cluster", "Version", "1.33", "1.34", "live", "nodes keep theirs"),
        ("eks-cluster", "Version", "1.33", "1.35", "replace", "1.34 first"),
        ("eks-cluster", "Version", "1.33", "1.32", "replace", "never goes back"),
    ],
)
def test_what_can_only_grow_is_not_called_live(
    stack: str, parameter: str, old: str, new: str, effect: str, words: str
) -> None:
    kind, say = parameter_effect(stack, parameter, {parameter: old}, {parameter: new})
    assert (kind, words in say) == (effect, True), say


def test_a_smaller_file_system_of_a_plan_is_refused() -> None:
    example = ROOT / "examples" / "p5-reservation.yaml"
    large, small = (make_plan(load(example, [f"storage.0.lustre.capacity={size}"])) for size in ("9.6TiB", "4.8TiB"))
    shrunk = difference(large.files, small.files)
    assert effects(shrunk)["Capacity"] == "replace"
    with pytest.raises(UserError, match="FSx never shrinks"):
        refuse_impossible(shrunk, force=True)


def test_a_field_the_table_lacks_has_its_parents_policy() -> None:
    path = "Scheduling.SlurmQueues[a].ComputeResources[b].CustomSlurmSettings.Sockets"
    assert policy_of(path) == "SUPPORTED"
    assert policy_of("HeadNode.CustomActions.OnNodeConfigured.Sequence[s3://x].Args") == "UNSUPPORTED"
    assert policy_of("Nothing.Like.This") == "UNKNOWN"
    assert effect_of("Nothing", 1, 2).kind == "replace"


def test_writing_again_removes_old_files_and_refuses_other_folders(tmp_path: Path) -> None:
    example = ROOT / "examples" / "p5-reservation.yaml"
    folder = tmp_path / "plan"
    first = make_plan(load(example))
    write(first, folder, {}, earlier_files(folder))
    assert (folder / "scripts/enroot.sh").stat().st_mode & 0o111
    alone = ["software.containers=none", "software.runtime=none", "slurm.JobCompType=jobcomp/none"]
    second = make_plan(load(example, alone))
    write(second, folder, {}, earlier_files(folder))
    assert not (folder / "scripts/enroot.sh").exists()
    assert not (folder / "stacks/bucket.yaml").exists()
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="holds no plan"):
        earlier_files(stranger)


def test_a_plan_for_another_platform_leaves_no_file_of_the_first(tmp_path: Path) -> None:
    """Archives too, and folders that are empty then; what somebody else put there stays."""
    folder = tmp_path / "plan"
    write(make_plan(load(ROOT / "examples/p5-reservation.yaml")), folder, {}, None)
    assert (folder / "runtime/trainwright.zip").is_file()
    (folder / "scripts/mine.sh").write_text("mine")
    write(make_plan(load(ROOT / "examples/eks-g5.yaml")), folder, {}, earlier_files(folder))
    listed = {"plan.json", "scripts/mine.sh", *json.loads((folder / "plan.json").read_text())["files"]}
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == listed
    assert not (folder / "runtime").exists()


@pytest.mark.parametrize("record", ["not json", "{}", '{"files": {"../../etc/passwd": "0"}}'])
def test_a_record_that_is_not_ours_is_refused(tmp_path: Path, record: str) -> None:
    (tmp_path / "plan.json").write_text(record)
    with pytest.raises(UserError):
        earlier_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cluster.yaml", "a: ["),
        ("stacks/network.parameters.json", "{"),
        ("stacks/network.parameters.json", "- 1\n- 2\n"),
    ],
)
def test_an_earlier_plan_that_was_edited_is_no_traceback(name: str, text: str) -> None:
    files = dict(make_plan(load(ROOT / "examples" / "p5-reservation.yaml")).files)
    with pytest.raises(UserError, match=f"{name} of the earlier plan"):
        difference({**files, name: text}, files)


def test_a_place_that_cannot_be_written_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    plan = make_plan(load(ROOT / "examples" / "local.yaml"))
    with pytest.raises(UserError, match="cannot write"):
        write(plan, tmp_path / "file" / "plan", {}, None)


def test_the_bill_adds_up() -> None:
    bill = make_plan(load(ROOT / "examples" / "p4de-train-g5-infer.yaml")).bill
    parts = {(line.part, line.what): line for line in bill.lines}
    train, infer = parts["queue train", "p4de.24xlarge"], parts["queue infer", "g5.12xlarge"]
    assert train.usd_hour_each == pytest.approx(27.44705)
    assert (infer.least, infer.most) == (0, 10)
    assert bill.usd_hour_full - bill.usd_hour_idle == pytest.approx(10 * 5.672 + 10 * 200 * 0.08 / 730)
    assert bill.usd_month_full == pytest.approx(bill.usd_hour_full * 730)


def test_a_reservation_is_paid_in_full_and_a_block_in_advance() -> None:
    group = make_plan(load(ROOT / "examples" / "p5-reservation-group.yaml")).bill
    nodes = next(line for line in group.lines if line.what == "p5.48xlarge")
    assert (nodes.least, nodes.most) == (16, 16)
    block = make_plan(load(ROOT / "examples" / "p5-capacity-block.yaml")).bill
    nodes = next(line for line in block.lines if line.what == "p5.48xlarge")
    assert "in advance" in nodes.note
