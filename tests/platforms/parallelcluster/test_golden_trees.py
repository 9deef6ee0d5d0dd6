"""Every example's plan, byte for byte, against tests/golden; `pytest --update-golden` writes it. Templates and pins are
copied into a plan unchanged, so they are compared with the library and not kept a second time; job scripts are the
schedulers' work and judged there."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from trainwright.catalog.runtime import runtime_pins
from trainwright.platforms.parallelcluster import monitoring, runtime
from trainwright.platforms.plan.tree import ClusterPlan, make_plan, write
from trainwright.platforms.tags import cluster_tags
from trainwright.report.picture import picture
from trainwright.spec.load import load
from trainwright.spec.source import parse
from trainwright.stacks.library import template
from trainwright.stacks.references import references

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
GOLDEN = ROOT / "tests" / "golden"


@pytest.fixture(autouse=True)
def same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer's and the exporter's own code is part of a plan, by checksum or in a boot script; a change is
    none of these trees."""
    monkeypatch.setattr(runtime, "node_files", lambda: {"__init__.py": b""})
    monkeypatch.setattr(runtime, "node_archive", lambda: b"the node side")
    monkeypatch.setattr(monitoring, "archive", lambda files: "")


@cache
def plan_of(example: Path) -> ClusterPlan:
    return make_plan(load(example))


def tree(plan: ClusterPlan, folder: Path) -> dict[str, str]:
    """The files of a plan as they are written, without the templates, the runtime's pins and job scripts."""
    write(plan, folder, {"picture.svg": picture(plan)}, None)
    if plan.archives:
        pins, shipped = runtime_pins(), folder / "runtime"
        assert (shipped / "requirements.txt").read_text() == pins.requirements
        assert (shipped / "uv.txt").read_text() == pins.uv_requirements
        for path in shipped.iterdir():
            path.unlink()
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    for stack in plan.stacks:
        assert files.pop(f"stacks/{stack.key}.yaml") == template(stack.template).tagged(cluster_tags(plan.spec))
    facts = json.loads(files["plan.json"])
    for job in plan.spec.jobs:
        name = next(n for n in files if n.startswith(f"jobs/{job.name}."))
        files.pop(name)
        facts["files"].pop(name)
    return {**files, "plan.json": json.dumps(facts, indent=2) + "\n"}


def kept(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_plan_is_the_golden_one(example: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = GOLDEN / example.stem
    if request.config.getoption("--update-golden"):
        plan = make_plan(load(example))
        header = f"# Cost: {plan.bill.headline}."
        example.write_text(re.sub(r"(?m)^# Cost: .*$", lambda _: header, example.read_text(), count=1))
        new = tree(plan, tmp_path)
        for name in set(kept(folder)) - set(new):
            (folder / name).unlink()
        for name, text in new.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    assert tree(plan_of(example), tmp_path) == kept(folder)


def test_the_golden_folder_holds_nothing_else() -> None:
    # jobs/ is kept by tests/schedulers/test_golden_jobs.py
    assert {path.name for path in GOLDEN.iterdir()} == {"jobs", *(path.stem for path in EXAMPLES)}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_header_has_the_price_of_the_plan(example: Path) -> None:
    assert f"# Cost: {plan_of(example).bill.headline}.\n" in example.read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_reference_is_an_output_of_a_stack_of_the_plan(example: Path) -> None:
    plan = plan_of(example)
    outputs = {stack.key: template(stack.template).outputs for stack in (*plan.stacks, *plan.own_stacks)}
    for text in plan.files.values():
        for stack, output in references(text):
            assert output in outputs[stack]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_scripts_pass_shellcheck(example: Path, tmp_path: Path) -> None:
    plan = plan_of(example)
    for name in [name for name in plan.files if name.endswith((".sh", ".sbatch"))]:
        path = tmp_path / Path(name).name
        path.write_text(plan.files[name])
        done = subprocess.run(["shellcheck", "-x", str(path)], capture_output=True, text=True, check=False)
        assert done.stdout == ""


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_parameter_files_are_what_cloudformation_takes(example: Path) -> None:
    plan = plan_of(example)
    for stack in plan.stacks:
        rows = json.loads(plan.files[f"stacks/{stack.key}.parameters.json"])
        assert all(set(row) == {"ParameterKey", "ParameterValue"} for row in rows)
        assert {row["ParameterKey"] for row in rows} >= template(stack.template).required


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_stacks_stand_in_an_order_that_can_be_deployed(example: Path) -> None:
    plan = plan_of(example)
    deployed: set[str] = set()
    for stack in plan.stacks:
        needed = {key for key, _ in references(plan.files[f"stacks/{stack.key}.parameters.json"])}
        assert needed <= deployed, stack.key
        deployed.add(stack.key)


def test_the_picture_in_the_docs_is_the_one_that_is_drawn(request: pytest.FixtureRequest) -> None:
    shown, drawn = ROOT / "docs/images/p5-reservation.svg", GOLDEN / "p5-reservation/picture.svg"
    if request.config.getoption("--update-golden"):
        shown.write_text(drawn.read_text())
    assert shown.read_text() == drawn.read_text()


def test_a_cluster_file_parses_to_what_was_meant() -> None:
    (root,) = parse((GOLDEN / "p5-reservation" / "cluster.yaml").read_text(), "cluster.yaml")
    resource = root.get("Scheduling", "SlurmQueues", 0, "ComputeResources", 0)
    assert resource is not None
    assert resource.plain() == {
        "Name": "p5-48xlarge",
        "InstanceType": "p5.48xlarge",
        "MinCount": 4,
        "MaxCount": 4,
        "Efa": {"Enabled": True},
        "CapacityReservationTarget": {"CapacityReservationId": "cr-0a1b2c3d4e5f67890"},
        "CustomSlurmSettings": {"Sockets": 2, "CoresPerSocket": 48, "ThreadsPerCore": 2},
    }
