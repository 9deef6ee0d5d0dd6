"""Loading a spec: the shape of DESIGN.md, mistakes with their places, base files and overrides."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml

from trainwright.errors import UserError
from trainwright.spec.defaults import resolve
from trainwright.spec.load import load, load_all, load_text
from trainwright.spec.mistakes import SpecError
from trainwright.spec.schema import schema

SPEC = """\
name: llama-pretrain
platform: parallelcluster
region: us-east-2
zone: use2-az3
queues:
  - name: train
    instance: p5.48xlarge
    count: 4
    capacity: {reservation: cr-0a1b2c3d4e5f67890}
  - name: infer
    instance: g5.12xlarge
    count: {min: 0, max: 10}
storage:
  - mount: /fsx
    lustre: {capacity: 4.8TiB, throughput: 250}
    bucket: s3://my-training-data
  - mount: /scratch
    nvme: raid0
head: {instance: m5.8xlarge, key: my-key}
software: {os: ubuntu2204, image: stock, containers: enroot}
monitoring: true
jobs:
  - name: pretrain
    recipe: llama3-8b
    queue: train
    nodes: 4
    parallel: {shard: 32, tp: 1}
    batch: {tokens: 4M}
    data: /fsx/data/c4
    steps: 50_000
    checkpoint: {every: 15min, to: /fsx/checkpoints}
"""


def write(folder: Path, text: str, name: str = "trainwright.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str) -> list[tuple[int, int, str, str]]:
    with pytest.raises(SpecError) as caught:
        load(write(folder, text))
    return [(m.span.line, m.span.column, m.what, m.fix) for m in caught.value.mistakes]


def test_the_design_spec_loads(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, SPEC))
    spec = loaded.spec
    assert spec.queues[0].capacity.kind == "reservation"
    assert (spec.queues[0].count.min, spec.queues[1].count.max) == (4, 10)  # type: ignore[union-attr]
    assert spec.storage[0].lustre.capacity == round(4.8 * 2**40)  # type: ignore[union-attr]
    job = spec.jobs[0]
    assert (job.batch.tokens, job.steps, job.checkpoint.every) == (4_000_000, 50_000, 900)  # type: ignore[union-attr]
    assert loaded.where("queues", 0, "instance").endswith("trainwright.yaml:7:15")


def test_every_mistake_is_reported_at_once_in_order(tmp_path: Path) -> None:
    text = (
        SPEC.replace("count: 4\n", "cont: 4\n")
        .replace("nvme: raid0", "nvme: raid5")
        .replace("every: 15min", "every: 15parsec")
    )
    reported = mistakes(tmp_path, text)
    assert [(line, column) for line, column, _, _ in reported] == [(8, 5), (18, 11), (31, 25)]
    assert reported[0][2:] == ("unknown key 'cont'", "did you mean 'count'?")
    assert "'parsec'" in reported[2][2]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("platform: parallelcluster", "platform: paralelcluster", 2, "platform"),
        ("name: llama-pretrain\n", "", 1, "'name' is missing"),
        ("{reservation: cr-0a1b2c3d4e5f67890}", "{reservation: a, block: b}", 9, "exactly one"),
        ("    nvme: raid0\n", "", 17, "exactly one of lustre"),
        ("4.8TiB", "[1]", 15, "not a quantity"),
        ("monitoring: true", "monitoring: perhaps", 21, "does not fit here"),
        ("recipe: llama3-8b", "recipe: llama3-8b\n    script: x.py", 23, "takes one of recipe, script and command"),
        ("    steps: 50_000\n", "    steps: 50_000\n    env: {FI_X: 1}\n", 31, "1 is not text: put it in quotes"),
        (
            "    steps: 50_000\n",
            "    steps: 50_000\n    env: {FI_X: yes}\n",
            31,
            "is a yes or no to YAML: put it in quotes",
        ),
    ],
)
def test_a_mistake_has_its_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in SPEC
    reported = mistakes(tmp_path, SPEC.replace(old, new))
    assert [(f[0], message in f[2]) for f in reported] == [(line, True)], reported


def test_extends_merges_maps_and_keeps_places(tmp_path: Path) -> None:
    write(tmp_path, SPEC, "base.yaml")
    over = write(tmp_path, "extends: base.yaml\nname: other\nhead: {key: your-key}\n")
    spec = load(over).spec
    assert (spec.name, spec.head.key, spec.head.instance) == ("other", "your-key", "m5.8xlarge")
    write(tmp_path, SPEC.replace("count: 4\n", "count: x\n"), "base.yaml")
    with pytest.raises(SpecError) as caught:
        load(over)
    assert caught.value.mistakes[0].file.endswith("base.yaml")


@pytest.mark.parametrize("value", ["", "[a.yaml, b.yaml]", "{a: b}", '""'])
def test_extends_takes_one_file(tmp_path: Path, value: str) -> None:
    with pytest.raises(UserError, match="`extends` takes the name of one file") as caught:
        load(write(tmp_path, f"extends: {value}\nname: other\n"))
    assert caught.value.where.endswith("trainwright.yaml:1:" + ("9" if not value else "10"))


def test_extends_that_goes_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path, "extends: b.yaml\n", "a.yaml")
    write(tmp_path, "extends: a.yaml\n", "b.yaml")
    with pytest.raises(UserError, match="circle"):
        load(tmp_path / "a.yaml")


def test_set_overrides_by_name_and_index(tmp_path: Path) -> None:
    path = write(tmp_path, SPEC)
    spec = load(
        path, ["queues.train.count=8", "storage.0.lustre.capacity=2.4TiB", "jobs.pretrain.batch.tokens=1M"]
    ).spec
    assert spec.queues[0].count.max == 8  # type: ignore[union-attr]
    assert spec.storage[0].lustre.capacity == round(2.4 * 2**40)  # type: ignore[union-attr]
    with pytest.raises(UserError, match="no element 'trian'") as caught:
        load(path, ["queues.trian.count=8"])
    assert caught.value.fix == "did you mean 'train'?"
    for step in ("²", "٣", "9" * 5000):  # digits to Python, and none of them an index
        with pytest.raises(UserError, match="no element"):
            load(path, [f"jobs.{step}=3"])
    with pytest.raises(UserError, match="key=value"):
        load(path, ["queues"])
    with pytest.raises(SpecError) as wrong:
        load(path, ["monitoring=maybe"])
    assert wrong.value.mistakes[0].file == "--set monitoring=maybe"


def test_several_documents(tmp_path: Path) -> None:
    path = write(tmp_path, SPEC + "---\n" + SPEC.replace("llama-pretrain", "second"))
    assert [one.spec.name for one in load_all(path)] == ["llama-pretrain", "second"]
    with pytest.raises(UserError, match="2 specs"):
        load(path)


def test_defaults_come_with_reasons(tmp_path: Path) -> None:
    spec = load(write(tmp_path, SPEC)).spec
    resolved, filled = resolve(spec)
    by_path = {default.path: default for default in filled}
    assert resolved.queues[0].efa is True
    assert resolved.queues[0].placement is False, "reserved capacity is already placed"
    assert "32 EFA" in by_path["queues.train.efa"].why
    assert all(default.why for default in filled)
    again, nothing = resolve(resolved)
    assert (again, nothing) == (resolved, ()), "resolving twice fills nothing more"


def test_schema_accepts_the_spec_and_describes_every_field() -> None:
    described = schema()
    jsonschema.Draft202012Validator.check_schema(described)
    validator = jsonschema.Draft202012Validator(described)
    document = yaml.safe_load(SPEC)
    assert list(validator.iter_errors(document)) == []
    document["queues"][0]["cont"] = 3
    assert list(validator.iter_errors(document))
    for name, part in {"Spec": described, **described["$defs"]}.items():
        for field, shape in part.get("properties", {}).items():
            referred = described["$defs"].get(shape.get("$ref", "").rpartition("/")[2], {})
            assert {"description"} & {*shape, *referred}, f"{name}.{field} has no description"


@pytest.mark.parametrize(
    ("line", "what", "fix"),
    [
        ("queues: [{name: t, count: four}]", "queues.0.count: 'four' does not fit", "a number, or {min: 0, max: 16}"),
        ("head: m5.8xlarge", "head: 'm5.8xlarge' does not fit", "such as {instance: …"),
        ("storage: [/scratch]", "storage.0: '/scratch' does not fit", "such as {mount: …"),
        ("jobs: [{name: a, batch: 4M}]", "jobs.0.batch: '4M' does not fit", "such as {tokens: …"),
        ("jobs: {name: a}", "jobs: a list belongs here", "starts with `- `"),
        ("jobs: [{name: a, nodes: four}]", "jobs.0.nodes: 'four' is not a whole number", ""),
    ],
)
def test_a_value_of_the_wrong_type_is_reported_in_terms_of_the_spec(
    tmp_path: Path, line: str, what: str, fix: str
) -> None:
    text = f"name: x\nplatform: local\n{line}\n" + ("" if "queues" in line else "queues: [{name: train, nodes: 1}]\n")
    ((_, _, message, hint),) = mistakes(tmp_path, text)
    assert what in message
    assert fix in hint


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("HeadNode: {InstanceType: c5.large}\nScheduling: {Scheduler: slurm}\n", "a ParallelCluster configuration"),
        ("AWSTemplateFormatVersion: '2010-09-09'\nResources: {}\n", "a CloudFormation template"),
        ("apiVersion: v1\nkind: Pod\n", "a Kubernetes manifest"),
        ("#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n", "a script"),
    ],
)
def test_a_file_of_another_kind_is_called_by_its_name(tmp_path: Path, text: str, kind: str) -> None:
    with pytest.raises(UserError, match=f"this is {kind}, not a Trainwright spec") as caught:
        load(write(tmp_path, text))
    assert "trainwright check" in caught.value.fix


def test_a_quoted_number_stays_a_text() -> None:
    job = "{name: j, command: [python, a.py, --lr, '1e-4', '0.10']}"
    text = f"name: a\nplatform: local\nqueues: [{{name: q}}]\njobs: [{job}]\n"
    assert load_text(text, "spec.yaml").spec.jobs[0].command[3:] == ("1e-4", "0.10")
