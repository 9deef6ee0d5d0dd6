"""PYT: what a script must save and load to resume."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.model import File
from trainwright.check.programs.load_devices import loads_onto_first_gpu
from trainwright.check.programs.resumes import lost_parts
from trainwright.check.programs.state_prefixes import mismatched_prefixes
from trainwright.check.programs.training_script import Script, script_of, span_of
from trainwright.check.programs.unused_positions import unused_positions
from trainwright.check.registry import Problem, problem, rule

_RESUMES = re.compile(r"resume|snapshot(?!_download)|start_epoch|epochs_run|last_epoch|from_checkpoint", re.IGNORECASE)
_OPTIMIZER_STATE = re.compile(
    r"\bopt\w*(\[\w+\])?\.state_dict\(|get_state_dict\(|get_optimizer_state_dict|optim_state_dict"
    r"|[\"']opt\w*[\"']\s*[:\]]"
)
_STATE_PART = re.compile(r"^opt|optim|sched", re.IGNORECASE)


@rule("PYT003", "info")
def optimizer_is_saved(file: File) -> Iterator[Problem]:
    """A checkpoint to resume from must hold the optimizer's state.

    A script that saves and loads a checkpoint to resume, has an optimizer of torch.optim, and never calls the
    optimizer's `state_dict`; or that loads a part of it (`state["optimizer"]`) which no `torch.save` of the script
    writes. Where the loop goes on at the step or epoch of the checkpoint (a warning): the state of the optimizer or
    scheduler that is not saved, or saved and not loaded. An epoch that is read, and a loop that starts at 0 all the
    same; weights that are saved with `module.` before their keys, and loaded without it; a checkpoint with the
    optimizer's state that all ranks load without `map_location`, onto GPU 0 (warnings too;
    notes where a parameter, a method or an attribute stands between).

    Why: Adam's moments start from zero after every restart: the loss jumps, and with frequent restarts the run never
    recovers. A whole checkpoint in float32 under Adam is 12 bytes per parameter (96 GB for 8B); weights alone are 4.

    Fix: save and load `optimizer.state_dict()`, the scheduler's and the step.

    Source: PyTorch, saving and loading a general checkpoint; the DDP test case of awsome-distributed-ai.

    When to ignore: the optimizer has no state (plain SGD).
    """
    script = script_of(file)
    if script is None:
        return
    yield from _unsaved_keys(script)
    parents, decided = script.parents, False
    for one in loads_onto_first_gpu(parents, file.text):
        yield problem(span_of(one.node), one.what, one.fix, level=one.level, why=one.why)
    for one in (
        *lost_parts(parents, file.text),
        *unused_positions(parents),
        *mismatched_prefixes(parents, file.text),
    ):
        decided = True
        yield problem(span_of(one.node), one.what, one.fix, level=one.level, why=one.why)
    if decided or _OPTIMIZER_STATE.search(file.text) or not _RESUMES.search(file.text):
        return
    if not re.search(r"torch\.optim\b|optim\.\w+\(", file.text) or not script.calls("torch.load"):
        return
    shown = [call for call in script.calls("torch.save") if call.args and _shows_content(call.args[0])]
    for call in shown[:1]:
        yield problem(
            span_of(call.func),
            "the script resumes from a checkpoint without the optimizer's state: Adam starts again from zero moments",
            "save and load optimizer.state_dict() too, and the scheduler's",
        )


def _unsaved_keys(script: Script) -> Iterator[Problem]:
    """Parts of a checkpoint for optimizer and schedule that are loaded and never saved."""
    saved = [_keys_of(script, call.args[0]) for call in script.calls("torch.save") if call.args]
    if not saved or None in saved:
        return
    written = set().union(*(keys for keys in saved if keys is not None))
    for call in script.calls("load_state_dict"):
        part = call.args[0] if call.args else None
        key = part.slice if isinstance(part, ast.Subscript) else None
        name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        if _STATE_PART.search(name) and name not in written and not _asks_for(script, call, name):
            yield problem(
                span_of(call.func),
                f"a resume fails: the checkpoint has no {name!r} ({', '.join(sorted(written))})",
                f"save it too: {{…, {name!r}: ….state_dict()}}",
                why=reasons.KEY_NOT_SAVED,
            )


def _keys_of(script: Script, saved: ast.expr) -> set[str] | None:
    """The keys of what is saved; None where the script does not show them."""
    if isinstance(saved, ast.Name):
        function = next((above for above in script.above(saved) if isinstance(above, ast.FunctionDef)), script.tree)
        inside = list(ast.walk(function))
        given = [n.value for n in inside if isinstance(n, ast.Assign) and saved.id in map(ast.unparse, n.targets)]
        changed = any(
            isinstance(n, ast.Subscript) and ast.unparse(n.value) == saved.id and isinstance(n.ctx, ast.Store)
            for n in inside
        )
        return (
            _keys_of(script, given[0]) if len(given) == 1 and not changed and isinstance(given[0], ast.Dict) else None
        )
    if not isinstance(saved, ast.Dict):
        return None
    keys = [key.value for key in saved.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return set(keys) if len(keys) == len(saved.keys) else None


def _asks_for(script: Script, call: ast.Call, name: str) -> bool:
    """Whether the script asks if the part is there before it loads it."""
    tests = (above.test for above in script.above(call) if isinstance(above, ast.If))
    return any(name in ast.unparse(test) for test in tests) or any(
        isinstance(above, ast.Try) for above in script.above(call)
    )


def _shows_content(saved: ast.expr) -> bool:
    """Whether the call itself shows what is saved; an object of another file may hold the optimizer."""
    return isinstance(saved, ast.Dict) or ast.unparse(saved).endswith(".state_dict()")
