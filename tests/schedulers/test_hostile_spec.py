"""1,000 hostile strings in every string field of a spec: a finding, or taken literally. Nothing is executed, neither by
the shells that read our scripts nor by a real Slurm, and nothing leaves its place in a manifest."""

from __future__ import annotations

import json
import os
import random
import subprocess
import types
import typing
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from hostile import MARK, strings
from pydantic import BaseModel, TypeAdapter, ValidationError
from slurm_bench import Bench, report

from counting_jobs import order
from trainwright.check.gate import require_clean
from trainwright.errors import UserError
from trainwright.jobs.resolve import resolve_job
from trainwright.runs import submission
from trainwright.runs.reach import scheduler_for
from trainwright.runs.submission import Order
from trainwright.shell_templates import in_control
from trainwright.spec.load import load_text
from trainwright.spec.model import Spec

HOSTILE = strings(1000)
FREE = {"env", "secrets"}  # what may hold several lines: values of variables
JOB: dict[str, Any] = {
    "name": "train", "command": ["python3", "train.py", "x"], "launcher": "plain", "args": ["--a", "b"], "queue": "q",
    "nodes": 1, "env": {"COLOUR": "blue"}, "time": "1h", "checkpoint": {"to": "/fsx/saved"},
}  # fmt: skip
SLURM: dict[str, Any] = {
    "name": "lab", "platform": "slurm", "queues": [{"name": "q", "nodes": 2, "cpus": 2}], "runs": "/fsx/runs",
    "head": {"host": "me@head"}, "storage": [{"mount": "/fsx", "folder": "/fsx"}],
    "jobs": [{**JOB, "account": "a", "qos": "b", "constraint": "c", "reservation": "d", "array": "0-3", "after": "12",
              "container": "image", "mounts": ["/data"]}],
}  # fmt: skip
KUBERNETES: dict[str, Any] = {
    "name": "pods", "platform": "kubernetes", "queues": [{"name": "q", "nodes": 2, "cpus": 2}], "runs": "/fsx/runs",
    "storage": [{"mount": "/fsx", "folder": "/fsx"}],
    "kubernetes": {"namespace": "n", "context": "c", "service_account": "s", "claims": {"/fsx": "fsx"}},
    "jobs": [{**JOB, "container": "image:1", "mounts": ["/data"], "secrets": {"TOKEN": "name/key"}}],
}  # fmt: skip
BATCH: dict[str, Any] = {
    "name": "b", "platform": "batch", "region": "us-east-2", "runs": "/fsx/runs",
    "queues": [{"name": "q", "instance": "p5.48xlarge", "count": 2}], "storage": [{"mount": "/fsx", "lustre": {}}],
    "batch": {"queues": {"q": "on-aws"}, "job_role": "r", "execution_role": "e"},
    "jobs": [{**JOB, "container": "image:1", "mounts": ["/data"], "secrets": {"TOKEN": "arn"}}],
}  # fmt: skip
CLUSTERS = {"slurm": SLURM, "kubernetes": KUBERNETES, "batch": BATCH}


def string_fields(model: type[BaseModel], seen: set[type]) -> Iterator[tuple[str, str, TypeAdapter[Any]]]:
    """Every field below a model that can hold a string: its model, its name, and what validates it."""
    seen.add(model)
    for name, field in model.model_fields.items():
        annotation: Any = field.annotation
        whole: Any = Annotated[annotation, *field.metadata] if field.metadata else annotation
        if _mentions(annotation, str):
            yield model.__name__, name, TypeAdapter(whole)
        for inner in _models(annotation):
            if inner not in seen:
                yield from string_fields(inner, seen)


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in typing.get_args(annotation):
        if isinstance(part, type | types.UnionType | types.GenericAlias) or typing.get_origin(part):
            yield from _parts(part)


def _mentions(annotation: Any, kind: type) -> bool:
    return kind in _parts(annotation)


def _models(annotation: Any) -> list[type[BaseModel]]:
    return [part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]


FIELDS = sorted({(model, name): adapter for model, name, adapter in string_fields(Spec, set())}.items())


def test_every_string_field_is_known() -> None:
    names = {f"{model}.{name}" for (model, name), _ in FIELDS}
    assert len(names) >= 60
    for expected in ("Job.account", "Job.env", "Queue.name", "Head.host", "Spec.tags", "Script.source", "Secret.file"):
        assert expected in names


@pytest.mark.parametrize(("field", "adapter"), FIELDS, ids=[".".join(field) for field, _ in FIELDS])
def test_a_field_refuses_a_string_or_keeps_it(field: tuple[str, str], adapter: TypeAdapter[Any]) -> None:
    for text in HOSTILE:
        for value in (text, [text], {text: "x"}, {"X": text}):
            try:
                kept = adapter.dump_python(adapter.validate_python(value))
            except (ValidationError, UserError):
                continue
            for one in strings_in(kept):
                assert one in (text, "x", "X") or one in text or not any(map(in_control, one)), (field, one)
                if any(map(in_control, one)):
                    assert field[1] in FREE, f"{'.'.join(field)} takes {one!r}"


def strings_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in strings_in(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in strings_in(part)]
    return [value] if isinstance(value, str) else []


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every string of a spec; of a key of a map, with None behind it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
            if path and path[-1] in ("env", "claims", "queues", "secrets"):
                yield (*path, key, None)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*path, index))
    elif isinstance(value, str):
        yield path


def changed(spec: dict[str, Any], path: tuple[Any, ...], text: str) -> dict[str, Any]:
    spec = deepcopy(spec)
    holder: Any = spec
    steps = path[:-1] if path[-1] is not None else path[:-2]
    for step in steps:
        holder = holder[step]
    if path[-1] is None:
        holder[text] = holder.pop(path[-2])
    else:
        holder[path[-1]] = text
    return spec


def rendered(spec: dict[str, Any]) -> str:
    """What `submit --dry-run` prints."""
    loaded = load_text(yaml.safe_dump(spec), "spec.yaml")
    require_clean(loaded)
    job = resolve_job(loaded).require()
    return submission.plan(Order(loaded, job, scheduler_for(loaded.spec, job.job, "", "", True))).script.text


def shape(value: Any) -> Any:
    """A document without its scalars: what a string must not change."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value)


SRUN = '#!/bin/sh\nfor word; do printf "%s\\0" "$word"; done > "$GIVEN"\n'


def run_script(folder: Path, script: str) -> list[str]:
    """Run a batch script with an srun that only writes down its words."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    silent = "#!/bin/sh\n"
    for name, text in {
        "srun": SRUN,
        "scontrol": silent + "echo localhost\n",
        "squeue": silent,
        "scancel": silent,
    }.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (folder / "given").unlink(missing_ok=True)
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}", "GIVEN": str(folder / "given"), "HOME": str(folder),
        "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "localhost", "SLURM_CPUS_PER_TASK": "1", "SLURM_ARRAY_TASK_ID": "0",
    }  # fmt: skip
    text = script.replace("/fsx", str(folder / "fsx"))
    subprocess.run(["bash", "-c", text], cwd=folder, env=environment, capture_output=True, timeout=20)
    assert not [path for path in folder.rglob(f"*{MARK}*") if path.is_file()], "a string was executed"
    return (folder / "given").read_text().split("\0") if (folder / "given").exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("name", CLUSTERS)
def test_a_spec_with_a_hostile_string_is_refused_or_literal(name: str, tmp_path: Path) -> None:
    """Each string field of three specs, with strings drawn from the thousand, through check, plan and the renderer."""
    spec = CLUSTERS[name]
    load: Callable[[str], Any] = yaml.safe_load if name == "kubernetes" else json.loads
    baseline = rendered(spec)
    chance, clean = random.Random(name), 0
    for path in places(spec):
        for text in chance.sample(HOSTILE, 16 if name == "slurm" else 40):
            try:
                script = rendered(changed(spec, path, text))
            except UserError:
                continue
            clean += 1
            if name != "slurm":
                same = shape(load(script)) == shape(load(baseline))
                assert same or path[-1] is None or "mounts" in path, (path, text)
                continue
            assert directives(script) == directives(baseline), (path, text)
            words = run_script(tmp_path, script)
            if "command" in path or "args" in path:
                assert text in words, (path, text)
    assert clean > 20, "the strings that are taken literally are tested too"


def directives(script: str) -> list[str]:
    return [line.partition("=")[0] for line in script.splitlines() if line.startswith("#SBATCH")]


DUMP = """
import json, os, pathlib, sys
names = sorted(name for name in os.environ if name.startswith("HOSTILE_"))
pathlib.Path(os.environ["TRAINWRIGHT_RUN"], "got.json").write_text(
    json.dumps([sys.argv[1:], [os.fsencode(os.environ[name]).decode() for name in names]])
)
"""


@pytest.mark.slurm
@pytest.mark.slow
def test_a_thousand_strings_reach_a_real_job_as_they_are(bench: Bench, tmp_path: Path) -> None:
    """As arguments and as values of variables, from a folder and a script whose names are hostile too."""
    folder = tmp_path / f"it's $(touch {MARK})\"; #"
    folder.mkdir()
    script = folder / f"a $(touch {MARK}) ';.py"
    script.write_text(DUMP)
    args = [text for text in HOSTILE if not any(map(in_control, text))]
    values = [text for text in HOSTILE if "\0" not in text]
    assert len(values) > 900
    run = bench.submit_job(
        script=str(script), launcher="srun", nodes=1, processes=1, args=args,
        env={f"HOSTILE_{number:04}": text for number, text in enumerate(values)},
        checkpoint={"to": str(tmp_path / f"$(touch {MARK})")},
    )  # fmt: skip
    assert bench.end(run, 120).state == "completed", report(run)
    assert json.loads((run.folder / "got.json").read_text()) == [args, values]
    nothing_ran(run.folder, tmp_path)


@pytest.mark.slurm
@pytest.mark.slow
def test_what_a_real_slurm_makes_of_them(bench: Bench, tmp_path: Path) -> None:
    """In every option of a job that Slurm itself reads: refused by us or by sbatch, or the job runs as it should."""
    chance = random.Random(17)
    for field in (
        "name",
        "account",
        "qos",
        "constraint",
        "reservation",
        "array",
        "after",
        "queue",
        "container",
        "mounts",
    ):
        for text in chance.sample(HOSTILE, 8):
            value: Any = [text] if field == "mounts" else text
            fields = {"command": ["true"], "launcher": "plain", "nodes": 1, "processes": 1, field: value}
            try:
                ordered = order(bench.spec, fields, bench.scheduler)
                require_clean(ordered.loaded)
                run = submission.submit(ordered, submission.plan(ordered))
            except UserError:
                continue
            assert bench.end(run).state in ("completed", "cancelled"), (field, text, report(run))
    nothing_ran(bench.record.folder, tmp_path, Path.cwd(), Path.home())
    assert bench.scheduler.jobs() == []


def nothing_ran(*folders: Path) -> None:
    for folder in folders:
        assert not [path for path in folder.iterdir() if path.name.startswith(MARK)]
