"""`python -m trainwright.health`: the checks on the node it runs on, needing nothing but Python. A Slurm prolog, an
epilog, HealthCheckProgram, a job with `health: true` and a pod all call this."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainwright.errors import UserError
from trainwright.health import output
from trainwright.health.node import Node, RecordedNode, RecordingNode
from trainwright.health.profile import profile_of
from trainwright.health.registry import SUITES, checks
from trainwright.health.verdict import EXIT_CODES, Report


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m trainwright.health", description="Check this node.")
    add = made.add_argument
    add("--suite", choices=SUITES, default="quick", help="quick: seconds. deep: minutes. burn: full load.")
    add("--json", action="store_true", help="The report as JSON.")
    add("--condition", action="store_true", help="The report as a patch of a Kubernetes node's status.")
    add("--verbose", action="store_true", help="List skipped checks too, each with its reason.")
    add("--instance", default="", help="Judge by this instance type instead of the node's own.")
    add("--expect", action="append", default=[], metavar="NAME=COUNT", help="Expect another count (gpus, efa, ...).")
    add("--act", action="store_true", help="Carry the verdict out: drain, resume, reboot, reset. Default: read only.")
    add("--exit-code", choices=("usable", "verdict"), default="usable", help="usable: 0 or 1. verdict: 0, 3, 4, 5, 6.")
    add("--root", type=Path, default=Path("/"), help="Where the node's files are; in a pod, the host's root.")
    add("--record", type=Path, metavar="FILE", help="Keep what was read in a file, to look at it elsewhere.")
    add("--replay", type=Path, metavar="FILE", help="Judge a recording instead of this node.")
    add("--list", action="store_true", help="List the checks.")
    add("--versions", action="store_true", help="Print the versions found here, as JSON.")
    add("--stragglers", type=Path, metavar="FOLDER", help="Name the ranks that delay the run kept in a folder.")
    add("--sum-up", type=Path, metavar="FOLDER", help="Print one table of the reports kept in a folder.")
    add("--unfit", action="store_true", help="With --sum-up: only the names of the nodes that are not fit for work.")
    return made


def main(words: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(words)
    try:
        return run(arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status


def run(arguments: argparse.Namespace) -> int:
    if arguments.list:
        print(check_list(arguments.json))
        return 0
    if arguments.sum_up:
        from trainwright.health.cluster import show, sum_up

        entries = sum_up(arguments.sum_up)
        unfit = ",".join(entry.node for entry in entries if not entry.usable)
        whole = json.dumps([entry.as_json() for entry in entries], indent=1) if arguments.json else show(entries)
        print(unfit if arguments.unfit else whole)
        return int(any(not entry.usable for entry in entries))
    if arguments.stragglers:
        return name_stragglers(arguments.stragglers, arguments.json)
    node = open_node(arguments)
    if arguments.versions:
        from trainwright.health.versions import versions_of

        print(json.dumps(versions_of(node), indent=1))
        return 0
    return check_node(node, arguments)


def name_stragglers(folder: Path, as_json: bool) -> int:
    """1 where a rank delays the others."""
    from dataclasses import asdict

    from trainwright.health import stragglers

    rows = stragglers.read(folder)
    if not rows:
        fix = "several ranks write it: `python -m trainwright.health.watch SCRIPT` for any script"
        raise UserError(f"no {stragglers.FILE} here", where=str(folder), fix=fix)
    named = stragglers.find(rows)
    if as_json:
        print(json.dumps({"step": rows[-1].step, "stragglers": [asdict(one) for one in named]}, indent=1))
    else:
        print("\n".join(map(stragglers.describe, named)) or f"no straggler among {len(rows[-1].hosts)} ranks")
    return int(bool(named))


def check_node(node: Node, arguments: argparse.Namespace) -> int:
    from trainwright.health.suite import run_suite

    if arguments.act and arguments.replay:
        raise UserError("a recording cannot be acted on", where="--act --replay", fix="leave one of them out")
    report = run_suite(node, profile_of(node, arguments.instance, tuple(arguments.expect)), arguments.suite)
    if isinstance(node, RecordingNode):
        node.save(arguments.record)
    print(text_of(report, arguments))
    if os.environ.get("TRAINWRIGHT_RUN") and not arguments.replay:
        keep(report, Path(os.environ["TRAINWRIGHT_RUN"]) / "health")
    if arguments.act:
        from trainwright.health.act import act

        for line in act(report, node):
            print(line, file=sys.stderr)
    return EXIT_CODES[report.verdict] if arguments.exit_code == "verdict" else int(not report.usable)


def open_node(arguments: argparse.Namespace) -> Node:
    if not arguments.replay:
        return RecordingNode(arguments.root) if arguments.record else Node(arguments.root)
    try:
        return RecordedNode(arguments.replay)
    except (OSError, ValueError, KeyError, TypeError):
        where = str(arguments.replay)
        raise UserError("this is no recording of a node", where=where, fix="`--record FILE` makes one") from None


def text_of(report: Report, arguments: argparse.Namespace) -> str:
    if arguments.json:
        return json.dumps(report.as_json(), indent=1)
    if arguments.condition:
        return json.dumps(output.as_condition(report))
    return output.as_text(report, arguments.verbose)


def keep(report: Report, folder: Path) -> None:
    """The verdict in the run folder, in a file of the node's own: nodes that share a disk never write the same one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{report.node}.json").write_text(json.dumps(report.as_json(), indent=1) + "\n")
    except OSError as error:
        print(f"the verdict could not be kept: {error}", file=sys.stderr)


def check_list(as_json: bool) -> str:
    """Every check: what it looks at, what it needs, and what its failure means."""
    if as_json:
        names = ("id", "suite", "needs", "seconds", "severity", "action", "title")
        return json.dumps([{name: getattr(one, name) for name in names} for one in checks()], indent=1)
    header = ("CHECK", "SUITE", "NEEDS", "SECONDS", "SEVERITY", "ACTION", "WHAT")
    rows = [
        (one.id, one.suite, ",".join(one.needs) or "-", f"{one.seconds:g}", one.severity, one.action, one.title)
        for one in checks()
    ]
    return output.columns(header, rows)


if __name__ == "__main__":
    sys.exit(main())
