"""Training steps whose parts stand in an order that does not train, or trains on other gradients than it seems."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, origin
from trainwright.check.programs.sharded_states import sharded_models
from trainwright.check.programs.training_steps import (
    Event,
    Mistake,
    Unit,
    block_of,
    conditions,
    counts_steps,
    is_optimizer,
    is_scaler,
    made,
    units,
)

_UNSCALES = re.compile(r"unscale|get_scale|inv_scale|grad_scale|\._scale\b")
_CLEARS = re.compile(r"zero_grad|\.grad\s*=|\bgrad\.zero_|grad\.(data\.)?zero_|set_to_none|\.backward\([^)]*inputs=")
_BETWEEN = {
    "clip_grad_norm_", "clip_grad_value_", "parameters", "update", "unscale_", "print", "item", "float", "append",
    "get_last_lr", "zero_grad", "info",
}  # fmt: skip
_WHOLE = re.compile(r"NO_SHARD")


def misplaced(parents: Parents, text: str) -> Iterator[Mistake]:
    """Parts of training steps that stand in the wrong place, or are missing."""
    for unit in units(parents):
        yield from _scaled(parents, unit, text)
        yield from _cleared_before_the_step(parents, unit)
        yield from _cleared_each_time(parents, unit)
        yield from _clipped_for_nothing(parents, unit)
        yield from _never_cleared(parents, unit, text)
    yield from _clipped_by_shard(parents, text)


def _scaled(parents: Parents, unit: Unit, text: str) -> Iterator[Mistake]:
    """What is done to gradients that a GradScaler has multiplied."""
    scaled = next((one for one in unit.of("backward") if one.scaler), None)
    if scaled is None or not is_scaler(parents, scaled.scaler) or _is_off(parents, scaled.scaler):
        return
    scaler, behind = scaled.scaler, [one for one in unit.events if one.place > scaled.place]
    steps = [one for one in behind if one.kind == "step" and one.scaler == scaler]
    for clip in (one for one in behind if one.kind == "clip" and steps and one.place < steps[-1].place):
        if not _UNSCALES.search(text) or _unscaled_later(parents, unit, clip):
            what = f"{last(clip.call)} clips gradients that {scaler} has scaled: {scaler}.unscale_ is not called before"
            step = next(one for one in steps if one.place > clip.place)
            yield Mistake(clip.call.func, what, _unscaled_once(parents, unit, clip, step), reasons.CLIPPED_SCALED)
            break
    plain = [one for one in behind if one.kind == "step" and not one.scaler and is_optimizer(parents, one.owner)]
    if plain and not re.search(rf"\b{re.escape(scaler)}\.step\(", text) and not _UNSCALES.search(text):
        what = f"{plain[0].owner}.step() takes gradients that {scaler} has scaled"
        updated = re.search(rf"\b{re.escape(scaler)}\.update\(", text)
        fix = f"call {scaler}.step({plain[0].owner}) instead" + ("" if updated else f", and {scaler}.update() after it")
        yield Mistake(plain[0].call.func, what, fix, reasons.STEPPED_SCALED, "error")
    handed = re.search(rf"[(,=]\s*{re.escape(scaler)}\s*[,)\]]", text)
    if steps and not handed and not re.search(rf"\b{re.escape(scaler)}\.update\(", text):
        what = f"{scaler}.update() is never called: the second {scaler}.step raises RuntimeError"
        yield Mistake(
            steps[-1].call.func, what, f"call {scaler}.update() after it", reasons.SCALER_NOT_UPDATED, "error"
        )


def _unscaled_once(parents: Parents, unit: Unit, clip: Event, step: Event) -> str:
    """The fix of clipping that is not unscaled: a second unscale_ before the same step raises RuntimeError."""
    unscale = f"{step.scaler}.unscale_({step.owner})"
    if _unscaled_later(parents, unit, clip):
        return f"move {unscale} above it"
    rare = set(conditions(parents, step.call, unit.node)) - set(conditions(parents, clip.call, unit.node))
    return (
        f"move it to the line before {step.scaler}.step, and call {unscale} above it"
        if rare
        else (f"call {unscale} before it")
    )


def _is_off(parents: Parents, scaler: str) -> bool:
    words = [word for call in made(parents, scaler) for word in call.keywords if word.arg == "enabled"]
    return any(isinstance(word.value, ast.Constant) and not word.value.value for word in words)


def _unscaled_later(parents: Parents, unit: Unit, clip: Event) -> bool:
    """Whether the script unscales only below the clipping, in the same loop."""
    calls = [node for node in parents if isinstance(node, ast.Call) and last(node) == "unscale_"]
    here = unit.of("unscale_")
    return len(calls) == len(here) > 0 and all(one.place > clip.place for one in here)


def _cleared_before_the_step(parents: Parents, unit: Unit) -> Iterator[Mistake]:
    """`backward`, `zero_grad`, `step`, one after the other."""
    for zero in unit.of("zero_grad"):
        block, number = block_of(parents, zero.call)
        before = [one for one in unit.of("backward", "step") if one.place < zero.place]
        after = [one for one in unit.of("backward", "step") if one.place > zero.place]
        if not before or before[-1].kind != "backward" or not after or after[0].kind != "step":
            continue
        step, place = after[0], block_of(parents, after[0].call)
        if step.owner != zero.owner or place[0] is not block or block_of(parents, before[-1].call)[0] is not block:
            continue
        calls = [node for one in block[number + 1 : place[1]] for node in ast.walk(one) if isinstance(node, ast.Call)]
        if all(last(call) in _BETWEEN for call in calls):
            what = f"{zero.owner}.zero_grad() stands between backward and step: the step has no gradients"
            fix = "call it before backward, or after the step"
            yield Mistake(zero.call.func, what, fix, reasons.GRADIENTS_EMPTY, "error")


def _cleared_each_time(parents: Parents, unit: Unit) -> Iterator[Mistake]:
    """`zero_grad` in every turn of a loop that steps only in some turns, or after its end."""
    passes = unit.of("backward")
    if not unit.is_loop or len(passes) != 1 or conditions(parents, passes[0].call, unit.node):
        return
    for zero in unit.of("zero_grad"):
        steps = [one for one in unit.of("step") if one.owner == zero.owner]
        if not is_optimizer(parents, zero.owner) or _is_skipped(parents, unit, zero):
            continue
        if conditions(parents, zero.call, unit.node):
            continue
        rare = [one for one in steps if _is_rare(parents, unit, one) or _is_skipped(parents, unit, one)]
        if (steps and len(rare) == len(steps)) or (not steps and _steps_after(parents, unit, zero.owner)):
            what = (
                f"{zero.owner}.zero_grad() runs at each backward, the step does not: gradients before the last are lost"
            )
            fix = "call it only after the step"
            yield Mistake(zero.call.func, what, fix, reasons.GRADIENTS_DROPPED)


def _is_rare(parents: Parents, unit: Unit, step: Event) -> bool:
    """Whether a step is taken every few turns, for certain."""
    around = conditions(parents, step.call, unit.node)
    return any(isinstance(one, ast.If) and inside and counts_steps(parents, one.test) for one, inside in around)


def _is_skipped(parents: Parents, unit: Unit, event: Event) -> bool:
    """Whether `if (i + 1) % N: continue` stands before an event, in the loop's own statements."""
    body = getattr(unit.node, "body", [])
    return any(
        isinstance(one, ast.If)
        and (one.end_lineno or 0) < event.call.lineno
        and isinstance(one.body[-1], ast.Continue)
        and counts_steps(parents, one.test)
        for one in body
    )


def _steps_after(parents: Parents, unit: Unit, owner: str) -> bool:
    """Whether the only steps of an optimizer follow the loop, in the statements that hold it."""
    block, number = block_of(parents, unit.node)
    steps = [
        node
        for node in parents
        if isinstance(node, ast.Call)
        and last(node) == "step"
        and owner in (ast.unparse(node.func).removesuffix(".step"), *map(ast.unparse, node.args))
    ]
    behind = {node for one in block[number + 1 :] for node in ast.walk(one)}
    return bool(steps) and all(one in behind for one in steps)


def _clipped_for_nothing(parents: Parents, unit: Unit) -> Iterator[Mistake]:
    """Clipping below the step, or above the backward pass, and none between them."""
    passes, steps, clips = unit.of("backward"), unit.of("step"), unit.of("clip")
    steps = [one for one in steps if one.scaler or is_optimizer(parents, one.owner)]
    if len(passes) != 1 or len(steps) != 1 or not clips or not unit.of("zero_grad"):
        return
    back, step = passes[0].place, steps[0].place
    if back > step or any(back < clip.place < step for clip in clips) or len(clips) != 1:
        return
    block = block_of(parents, steps[0].call)[0]
    if any(block_of(parents, one.call)[0] is not block for one in (*clips, *passes)):
        return
    late = clips[0].place > step
    what = "gradients are clipped after the step" if late else "gradients are clipped before backward computes them"
    fix = "clip between backward and the step"
    if steps[0].scaler and not unit.of("unscale_"):
        fix += f", below {steps[0].scaler}.unscale_({steps[0].owner})"
    yield Mistake(clips[0].call.func, f"{what}: it has no effect", fix, reasons.CLIPPED_FOR_NOTHING)


def _never_cleared(parents: Parents, unit: Unit, text: str) -> Iterator[Mistake]:
    steps = [one for one in unit.of("step") if is_optimizer(parents, one.owner)]
    if not unit.is_loop or not steps or not unit.of("backward") or _CLEARS.search(text):
        return
    owners = list(dict.fromkeys(one.owner for one in steps))
    what = f"the gradients of {' and '.join(owners)} are never cleared: each backward adds to all before it"
    fix = f"call {' and '.join(f'{owner}.zero_grad()' for owner in owners)} after the step"
    yield Mistake(steps[0].call.func, what, fix, reasons.GRADIENTS_SUMMED)


def _clipped_by_shard(parents: Parents, text: str) -> Iterator[Mistake]:
    """`clip_grad_norm_` of torch.nn.utils on a model in FullyShardedDataParallel."""
    models = sharded_models(parents) if "clip_grad_norm_" in text and not _WHOLE.search(text) else set()
    for node in parents if models else ():
        if not isinstance(node, ast.Call) or last(node) != "clip_grad_norm_" or not node.args:
            continue
        model = ast.unparse(node.args[0]).removesuffix(".parameters()")
        ours = re.search(rf"\b{re.escape(model)}\.clip_grad_norm_\(", text)
        if (
            model in models
            and not ours
            and origin(parents, node.func).startswith("torch.nn.utils")
            and _divides(parents, model)
        ):
            what = f"each rank clips its part of {model} by the norm of this part alone"
            yield Mistake(
                node.func, what, f"call {model}.clip_grad_norm_(…), which asks all ranks", reasons.CLIPPED_BY_SHARD
            )


def _divides(parents: Parents, model: str) -> bool:
    """Whether each wrapper of a model divides it, as far as the script shows."""
    words = [word for call in made(parents, model) for word in call.keywords]
    named = [word for word in words if word.arg in ("sharding_strategy", None)]
    return all("ShardingStrategy." in ast.unparse(word.value) for word in named)
