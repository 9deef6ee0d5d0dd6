"""What `up` says before it makes anything: who pays, what AWS answered, every step with what it does, and the price."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwright.platforms.apply.prepare import Prepared


def show_prepared(prepared: Prepared) -> str:
    spec = prepared.plan.spec
    lines = [f"cluster {spec.name}, platform {spec.platform}, region {spec.region}", ""]
    lines += [f"  {answer.verdict:5} {answer.question}: {answer.words}" for answer in prepared.answers]
    lines += [f"  note  {note}" for note in prepared.build.notes]
    lines += ["", "steps, in this order (those that do not need each other side by side):"]
    lines += [f"  {prepared.fate(step):16} {step.title}" for step in prepared.steps]
    if prepared.changes.changes:
        lines += ["", "what changes on what is there:"]
        lines += [f"  {_change(change)}" for change in prepared.changes.changes]
    return "\n".join([*lines, "", f"price: {prepared.plan.bill.headline}"])


def _change(change: object) -> str:
    from trainwright.platforms.plan.difference import Change

    assert isinstance(change, Change)
    was = f": {change.old} -> {change.new}" if change.path else ""
    return f"{change.effect:8} {change.file} {change.path}{was} ({change.say})"
