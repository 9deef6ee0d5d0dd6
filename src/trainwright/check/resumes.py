"""What a training script takes up again from its checkpoint, and what it leaves behind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.barriers import last
from trainwright.check.python_names import Parents, origin, scope_of
from trainwright.check.training_steps import Mistake, made
from trainwright.check.wrapped_models import wrapped

_POSITION = re.compile(r"epoch|step|iter", re.IGNORECASE)
_STATEFUL = re.compile(r"torch\.optim\.(\w+\.)*(Adam\w*|NAdam|RAdam|Adagrad|Adadelta|RMSprop|LBFGS|Adafactor|Muon)")
# Those whose rate depends on how far they are; others go on from the rate that the optimizer's state holds.
_SCHEDULER = re.compile(
    r"torch\.optim\.lr_scheduler\.(LambdaLR|CosineAnnealing\w+|OneCycleLR|LinearLR|PolynomialLR|SequentialLR|CyclicLR"
    r"|ChainedScheduler|MultiStepLR|StepLR)|transformers\.(\w+\.)*get_\w*schedule\w*"
)
_EACH_STEP = re.compile(r"StepLR\(\w+, (step_size=)?1\b")
_ELSEWHERE = re.compile(r"last_epoch|scheduler\w*\.step\([^)]|get_state_dict\(|optim_state_dict|deepspeed|dcp\.|vars\(")
_PRINTS = re.compile(r"print|info|debug|warning|log\w*|write|format|set_description", re.IGNORECASE)
_PREFIX = re.compile(r"[\"']module\.|consume_prefix|strict\s*=\s*False|removeprefix|lstrip")


def lost_parts(parents: Parents, text: str) -> Iterator[Mistake]:
    """The optimizer and the schedule of a script that goes on at a saved step, and forgets their states."""
    saved = _saved(parents)
    if saved is None or _ELSEWHERE.search(text) or not _goes_on(parents):
        return
    call, content = saved
    for kind, pattern, why in (
        ("optimizer", _STATEFUL, reasons.MOMENTS_LOST),
        ("scheduler", _SCHEDULER, reasons.SCHEDULE_LOST),
    ):
        names = [] if kind == "scheduler" and _EACH_STEP.search(text) else sorted(_names_of(parents, pattern))
        stepped = [one for one in names if re.search(rf"\b{re.escape(one)}\.step\(|\.step\({re.escape(one)}\)", text)]
        if len(stepped) != 1 or _is_handed_over(parents, text, stepped[0], kind):
            continue
        name = stepped[0]
        kept = re.search(rf"\b{re.escape(name)}\.state_dict\(", text)
        loaded = re.search(rf"\b{re.escape(name)}\.load_state_dict\(", text)
        if not kept and not loaded and not re.search(rf"\b{re.escape(name)}\b", content):
            what = f"the script goes on at the saved step, and the checkpoint has no state of {name}"
            yield Mistake(call.func, what, f"save {name}.state_dict() too, and load it", why)
        elif kept and not loaded and re.search(rf"\b{re.escape(name)}\.state_dict\(", content):
            what = f"the state of {name} is saved and never loaded: the script goes on at the saved step without it"
            yield Mistake(call.func, what, f"call {name}.load_state_dict(…) where the step is read", why)


def _is_handed_over(parents: Parents, text: str, name: str, kind: str) -> bool:
    """Whether a function of another file is given the object, and may save or load it; a scheduler that is made of it
    does not."""
    own = r"(\w+\.)*([A-Z]\w*|unscale_|step|clip\w*|get_\w+_schedule\w*)\(\s*"
    rest = re.sub(own + re.escape(name) + r"\b", "", text) if kind == "optimizer" else text
    for function in _taking(parents, name):
        rest = re.sub(rf"(?<!\.)\b{re.escape(function)}\([^()]*\)", "", rest)
    return re.search(rf"[(,=]\s*{re.escape(name)}\s*[,)]", rest) is not None


def _taking(parents: Parents, name: str) -> Iterator[str]:
    """The functions of the script that know the object by the same name: the text shows what they do with it."""
    calls = [node for node in parents if isinstance(node, ast.Call)]
    for node in parents:
        if isinstance(node, ast.FunctionDef) and any(one.arg == name for one in node.args.args):
            own = (call for call in calls if ast.unparse(call.func) == node.name)
            if all(_keeps_name(call, node, name) for call in own):
                yield node.name


def _keeps_name(call: ast.Call, function: ast.FunctionDef, name: str) -> bool:
    """Whether a call gives an object to no parameter but the one of its name."""
    given = zip(call.args, (one.arg for one in function.args.args), strict=False)
    words = ((word.value, word.arg) for word in call.keywords)
    return all(parameter == name for value, parameter in (*given, *words) if ast.unparse(value) == name)


def _saved(parents: Parents) -> tuple[ast.Call, str] | None:
    """The only `torch.save` of a dict, where the script shows what is in it."""
    calls = [node for node in parents if isinstance(node, ast.Call) and origin(parents, node.func) == "torch.save"]
    shown = [(call, _content(parents, call.args[0])) for call in calls if call.args]
    if len(shown) != 1 or shown[0][1] is None:
        return None
    return shown[0][0], shown[0][1]


def _content(parents: Parents, value: ast.expr) -> str | None:
    """A dict of constant keys, as it is written; None where the script does not show it all."""
    if isinstance(value, ast.Name):
        scope = scope_of(parents, value)
        given = [n for n in ast.walk(scope) if isinstance(n, ast.Assign) and value.id in map(ast.unparse, n.targets)]
        uses = [n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == value.id]
        if len(given) != 1 or len(uses) != 2 or not isinstance(given[0].value, ast.Dict):
            return None
        value = given[0].value
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return None
    return ast.unparse(value)


def _goes_on(parents: Parents) -> bool:
    """Whether a loop starts at a number that is read from a checkpoint."""
    loaded = {name for node in parents for name in _loaded_into(parents, node)}
    returns = [node for node in parents if isinstance(node, ast.Return) and node.value is not None]
    around = [scope_of(parents, one) for one in returns if one.value and _reads_position(one.value, loaded)]
    returning = {one.name for one in around if isinstance(one, ast.FunctionDef)}
    places = {
        ast.unparse(target)
        for node in parents
        if isinstance(node, ast.Assign) and (_reads_position(node.value, loaded) or _is_call_of(node.value, returning))
        for target in node.targets
    }
    loops = [node for node in parents if isinstance(node, ast.For | ast.While)]
    heads = [node.iter if isinstance(node, ast.For) else node.test for node in loops]
    named = (one for head in heads for one in ast.walk(head) if isinstance(one, ast.Name | ast.Attribute))
    return any(ast.unparse(one) in places for one in named)


def _is_call_of(value: ast.expr, functions: set[str]) -> bool:
    """`restore(path)`, alone or `if` there is a file."""
    return any(isinstance(one, ast.Call) and ast.unparse(one.func) in functions for one in ast.walk(value))


def _loaded_into(parents: Parents, node: ast.AST) -> list[str]:
    call = node.value if isinstance(node, ast.Assign) else None
    loads = isinstance(call, ast.Call) and last(call) == "load" and origin(parents, call.func) == "torch.load"
    return [ast.unparse(one) for one in node.targets] if loads and isinstance(node, ast.Assign) else []


def _reads_position(value: ast.expr, loaded: set[str]) -> bool:
    """`state["epoch"] + 1`, or `state.get("step", 0)`, of what was loaded."""
    for node in ast.walk(value):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in loaded:
            key = node.slice
        elif isinstance(node, ast.Call) and ast.unparse(node.func).removesuffix(".get") in loaded and node.args:
            key = node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and _POSITION.search(key.value):
            return True
    return False


def _names_of(parents: Parents, pattern: re.Pattern[str]) -> set[str]:
    return {
        ast.unparse(node.targets[0])
        for node in parents
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and len(node.targets) == 1
        and pattern.fullmatch(origin(parents, node.value.func))
        and len(made(parents, ast.unparse(node.targets[0]))) == 1
    }


def unused_positions(parents: Parents) -> Iterator[Mistake]:
    """An epoch that is read from the checkpoint, and a loop over epochs that starts at 0 all the same."""
    loaded = {name for node in parents for name in _loaded_into(parents, node)}
    for node in parents:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0]
        if not _reads_position(node.value, loaded) or "best" in name.id:
            continue
        scope = scope_of(parents, name)
        loop = _loop_from_zero(scope, node, name.id)
        if loop is not None and not _is_used(parents, scope, name.id, node, loop):
            what = f"{name.id} is read from the checkpoint, and the loop in line {loop.lineno} starts at 0 all the same"
            count = ast.unparse(loop.iter.args[0]) if isinstance(loop.iter, ast.Call) else "…"
            fix = f"write range({name.id}, {count}); add 1 where the saved one is that of a finished turn"
            yield Mistake(name, what, fix, reasons.EPOCH_NOT_USED)


def _loop_from_zero(scope: ast.AST, read: ast.Assign, name: str) -> ast.For | None:
    """The training loop below, over the same kind of number, that counts from 0."""
    for node in ast.walk(scope):
        if not isinstance(node, ast.For) or node.lineno < read.lineno or not isinstance(node.iter, ast.Call):
            continue
        counted = last(node.iter) in ("range", "trange") and len(node.iter.args) == 1
        same = _units(ast.unparse(node.target)) & _units(name + ast.unparse(read.value))
        trains = any(isinstance(one, ast.Call) and last(one) == "backward" for one in ast.walk(node))
        if counted and same and trains:
            return node
    return None


def _units(text: str) -> set[str]:
    return {word.lower() for word in _POSITION.findall(text)}


def _is_used(parents: Parents, scope: ast.AST, name: str, read: ast.Assign, loop: ast.For) -> bool:
    """Whether anything but a print reads a name; one that the loop itself counts is lost at its first turn."""
    own = ast.unparse(loop.target) == name
    for node in ast.walk(scope):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return True
        if not isinstance(node, ast.Name) or node.id != name or not isinstance(node.ctx, ast.Load):
            continue
        if own and node.lineno > loop.lineno:
            continue
        if not _is_printed(parents, node):
            return True
    return False


def _is_printed(parents: Parents, node: ast.AST) -> bool:
    while node in parents and not isinstance(node, ast.stmt):
        node = parents[node]
        if isinstance(node, ast.Call):
            return _PRINTS.fullmatch(last(node)) is not None
    return False


def mismatched_prefixes(parents: Parents, text: str) -> Iterator[Mistake]:
    """Weights that are saved with `module.` before their keys, and loaded without it, or the other way round."""
    if "DistributedDataParallel" not in text or _PREFIX.search(text):
        return
    calls = [node for node in parents if isinstance(node, ast.Call)]
    for name, (inner, wrap) in wrapped(parents).items():
        if inner.split("(")[0].removesuffix(".to").removesuffix(".cuda") != name or len(made(parents, name)) > 2:
            continue
        scope = scope_of(parents, wrap)
        here = [one for one in calls if scope_of(parents, one) is scope]
        saves = {ast.unparse(one.func) for one in calls if last(one) == "state_dict"} & _forms(name, "state_dict")
        loads = [one for one in here if ast.unparse(one.func) in _forms(name, "load_state_dict")]
        if len(saves) != 1 or len(loads) != 1 or not _reads_a_checkpoint(parents, loads[0]):
            continue
        saved_inside = f"{name}.module.state_dict" in saves
        plain = f"{name}.load_state_dict" == ast.unparse(loads[0].func)
        loaded_inside = not plain or loads[0].lineno < wrap.lineno
        if all(one.lineno > wrap.lineno for one in here if last(one) == "state_dict") and saved_inside != loaded_inside:
            what = f"a resume fails: {min(saves)} is saved, whose keys differ from those of {name} in this line"
            fix = f"save {name}.module.state_dict(), and load it into {name} before it is wrapped, or {name}.module"
            yield Mistake(loads[0].func, what, fix, reasons.PREFIX_MISMATCH)


def _forms(name: str, method: str) -> set[str]:
    return {f"{name}.{method}", f"{name}.module.{method}"}


def _reads_a_checkpoint(parents: Parents, call: ast.Call) -> bool:
    """Whether what is loaded comes from the file that the script saves: a part of a dict."""
    part = call.args[0] if len(call.args) == 1 and not call.keywords else None
    loaded = {name for node in parents for name in _loaded_into(parents, node)}
    return isinstance(part, ast.Subscript) and ast.unparse(part.value) in loaded and _saved(parents) is not None
