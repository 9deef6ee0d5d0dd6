"""The page that shows one recipe on every scheduler: what each tells the ranks and why, taken from what
`submit --dry-run` would hand over."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from trainwright.catalog.environment import EnvVar
from trainwright.platforms.local import daemons
from trainwright.runs.request import SubmitRequest, order_for
from trainwright.runs.submission import Planned, plan
from trainwright.schedulers.kubernetes.kinds import KINDS

SPECS = Path(__file__).parents[1] / "tests/golden/jobs"
JOB = "debug"
RUN = "RUN"  # stands for the run folder


@dataclass(frozen=True)
class Way:
    """One way to run the job: a column of the table."""

    title: str
    spec: str
    words: tuple[str, ...] = ()  # --set
    scheduler: str = ""
    host: str = ""


WAYS = (
    Way("Slurm on ParallelCluster", "spec.yaml", host="head"),
    Way("Slurm on HyperPod", "spec.yaml", ("platform=hyperpod", "queues.train.capacity=on-demand"), host="head"),
    Way("Slurm on this machine", "local.yaml"),
    Way("Kubernetes (EKS)", "spec.yaml", ("platform=eks",)),
    Way("AWS Batch", "spec.yaml", ("platform=batch",)),
    Way("plain processes", "local.yaml", (f"jobs.{JOB}.nodes=1",), scheduler="process"),
)
# How each script tells a rank its place -> what is shown of it.
PLACE = {
    "number of the node": (r"GROUP_RANK=(\S+)", r"--node-rank=\"?([^\s\",]+)", r"export RANK=(\S+)"),
    "address of the first node": (
        r"MASTER_ADDR=\$\((.+)\)", r"--master-addr=\"?(\$\{\w+|[^\s\",]+)", r"^ +- (\S+-worker-0\.\S+)",
    ),
    "port to meet at": (r"MASTER_PORT=\$\(\((.+)\)\)", r"--master-port=\"?([^\s\",]+)", r"^ +- '(\d{5})'$"),
    "ranks are started by": (
        r"^(srun)\b", r"(?<=- )(mpirun)\b", r"(torch\.distributed\.run --standalone)", r"\b(torchrun)\b",
    ),
}  # fmt: skip


def planned(way: Way) -> Planned:
    """What would be submitted."""
    request = SubmitRequest(
        str(SPECS / way.spec), JOB, overrides=way.words, scheduler=way.scheduler, host=way.host, dry=True
    )
    with _no_machine():
        return plan(order_for(request))


@contextmanager
def _no_machine() -> Iterator[None]:
    """What this shell has set and what this machine has installed must not reach the page."""
    before = {name: os.environ.pop(name, None) for name in ("PYTHONPATH", "TRAINWRIGHT_HOME")}
    try:
        with patch.object(daemons, "namespaces_allowed", return_value=True):
            yield
    finally:
        os.environ.update({name: value for name, value in before.items() if value is not None})


def lines(made: Planned) -> dict[str, EnvVar]:
    """The environment, without what differs between two runs."""
    folder = str(made.launch.folder)
    kept = {line.name: EnvVar(line.name, line.value.replace(folder, RUN), line.why) for line in made.launch.environment}
    if "TRAINWRIGHT_RUN" not in kept:  # written by the script itself
        kept["TRAINWRIGHT_RUN"] = EnvVar("TRAINWRIGHT_RUN", RUN, "the run folder holds everything the job writes")
    return kept


def place(text: str) -> dict[str, str]:
    """What a script says about a rank's place, in its own words."""
    return {what: _first(patterns, text) for what, patterns in PLACE.items()}


def _first(patterns: tuple[str, ...], text: str) -> str:
    """The first that matches; in JSON a quote has a backslash, and in a variable of a pod a dollar stands twice."""
    text = text.replace('\\"', '"').replace("$$(", "$(")
    matches = (re.search(pattern, text, re.MULTILINE) for pattern in patterns)
    return next((re.sub(r"^\$\{", "$", match[1]) for match in matches if match), "")


def kinds_table() -> Iterator[str]:
    """The kinds of a job on Kubernetes, each in a row."""
    yield f"| kind | {' | '.join(PLACE)} |"
    yield f"| --- |{' --- |' * len(PLACE)}"
    for kind in KINDS:
        made = planned(Way(kind, "spec.yaml", ("platform=eks", f"kubernetes.kind={kind}")))
        cells = place(made.script.text.replace(made.run.name, RUN))
        told = [f"`{cells[what]}`" if cells[what] else "its runtime" for what in PLACE]
        yield f"| `{kind}` | {' | '.join(told)} |"


def schedulers_page() -> str:
    made = {way.title: planned(way) for way in WAYS}
    environments = {title: lines(one) for title, one in made.items()}
    shapes = {title: f"{one.launch.nodes} × {one.launch.processes}" for title, one in made.items()}
    rows = {"nodes × ranks": shapes}
    rows |= {what: {title: place(one.script.text)[what] for title, one in made.items()} for what in PLACE}
    names = list(dict.fromkeys(name for environment in environments.values() for name in environment))
    variables = {
        f"`{name}`": {title: env[name].value if name in env else "" for title, env in environments.items()}
        for name in names
    }
    return "\n".join(
        [
            *_INTRODUCTION,
            *_table(rows),
            "",
            "On Kubernetes a job is one of these kinds (the column above is a PyTorchJob). A TrainJob's runtime gives",
            "`torchrun` its place in variables (`PET_NODE_RANK` and so on); under MPI a rank learns its own number.",
            "",
            *kinds_table(),
            "",
            "## The environment",
            "",
            "`RUN` is the run folder. An empty field: the variable is not set there.",
            "",
            *_table(variables),
            "",
            "## Why",
            "",
            *_reasons(names, environments),
            *_AGREEMENT,
        ]
    )


def _table(rows: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    titles = [way.title for way in WAYS]
    yield f"| | {' | '.join(titles)} |"
    yield f"| --- |{' --- |' * len(titles)}"
    for name, values in rows.items():
        cells = [f"`{values[title]}`".replace("|", "\\|") if values[title] else "" for title in titles]
        yield f"| {name} | {' | '.join(cells)} |"


def _reasons(names: list[str], environments: Mapping[str, Mapping[str, EnvVar]]) -> Iterator[str]:
    for name in names:
        by_reason: dict[str, list[str]] = {}
        for title, environment in environments.items():
            if name in environment:
                by_reason.setdefault(environment[name].why, []).append(title)
        for why, where in by_reason.items():
            limited = f" ({', '.join(where)})" if len(by_reason) > 1 or len(where) < len(environments) else ""
            yield f"- `{name}`{limited}: {why}"


_INTRODUCTION = [
    "# One recipe, five schedulers",
    "",
    f"Written from the code by `make docs`: the job `{JOB}` of `tests/golden/jobs/spec.yaml` (and of `local.yaml`, the",
    "same job for this machine) as `submit --dry-run` would hand it over. Nothing in a recipe names a scheduler; what",
    "differs between them is computed, and the reasons are below.",
    "",
    "## A rank's place",
    "",
    "Slurm starts every rank by itself, so the script tells each task its place. The others start one `torchrun` per",
    "node, which numbers the ranks of its node.",
    "",
]
_AGREEMENT = [
    "",
    "## Where they agree",
    "",
    "`tests/schedulers/test_one_recipe.py` holds that the trainer gets the same options everywhere, that nodes and",
    "ranks are the same, and that two schedulers give a variable different values only for a reason of theirs: the",
    "name of the network card inside a container's own network, and folders.",
    "",
]
