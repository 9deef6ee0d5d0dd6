"""What a training script takes up again from its checkpoint, and what it leaves behind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, bindings, origin, scope_of
from trainwright.check.programs.training_steps import Mistake, made

POSITION = re.compile(r"epoch|step|iter", re.IGNORECASE)
_STATEFUL = re.compile(r"torch\.optim\.(\w+\.)*(Adam\w*|NAdam|RAdam|Adagrad|Adadelta|RMSprop|LBFGS|Adafactor|Muon)")
# Those whose rate depends on how far they are; others go on from the rate that the optimizer's state holds.
_SCHEDULER = re.compile(
    r"torch\.optim\.lr_scheduler\.(LambdaLR|CosineAnnealing\w+|OneCycleLR|LinearLR|PolynomialLR|SequentialLR|CyclicLR"
    r"|ChainedScheduler|MultiStepLR|StepLR)|transformers\.(\w+\.)*get_\w*schedule\w*"
)
_EACH_STEP = re.compile(r"StepLR\(\w+, (step_size=)?1\b")
_ELSEWHERE = re.compile(r"last_epoch|scheduler\w*\.step\([^)]|get_state_dict\(|optim_state_dict|deepspeed|dcp\.|vars\(")


def lost_parts(parents: Parents, text: str) -> Iterator[Mistake]:
    """The optimizer and the schedule of a script that goes on at a saved step, and forgets their states."""
    saved = saved_dict(parents)
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


def saved_dict(parents: Parents) -> tuple[ast.Call, str] | None:
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
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "dict" and not value.args:
        return ast.unparse(value) if all(word.arg is not None for word in value.keywords) else None
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return None
    return ast.unparse(value)


def _goes_on(parents: Parents) -> bool:
    """Whether a loop starts at a number that is read from a checkpoint."""
    loaded = {name for node in parents for name in loaded_into(parents, node)}
    returning = {name for name, places in returned_positions(parents, loaded).items() if None in places}
    places = {
        ast.unparse(target)
        for node in parents
        if isinstance(node, ast.Assign) and (reads_position(node.value, loaded) or _is_call_of(node.value, returning))
        for target in node.targets
    }
    loops = [node for node in parents if isinstance(node, ast.For | ast.While)]
    heads = [node.iter if isinstance(node, ast.For) else node.test for node in loops]
    named = (one for head in heads for one in ast.walk(head) if isinstance(one, ast.Name | ast.Attribute))
    return any(ast.unparse(one) in places for one in named)


def returned_positions(parents: Parents, loaded: set[str]) -> dict[str, dict[int | None, str]]:
    """The functions that return a number of the checkpoint, alone (None) or at a place among other values, with what
    it is read from."""
    functions: dict[str, dict[int | None, str]] = {}
    for node in (one for one in parents if isinstance(one, ast.Return)):
        function = scope_of(parents, node)
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for at, value in enumerate(values if isinstance(function, ast.FunctionDef) else ()):
            given = [value, *(bindings(parents, value) if isinstance(value, ast.Name) else ())]
            read = next((one for one in given if one is not None and reads_position(one, loaded)), None)
            if read is not None:
                place = at if isinstance(node.value, ast.Tuple) else None
                functions.setdefault(function.name, {})[place] = ast.unparse(read)  # type: ignore[attr-defined]
    return functions


def _is_call_of(value: ast.expr, functions: set[str]) -> bool:
    """`restore(path)`, alone or `if` there is a file."""
    return any(
        isinstance(one, ast.Call) and ast.unparse(one.func).removeprefix("self.") in functions
        for one in ast.walk(value)
    )


def loaded_into(parents: Parents, node: ast.AST) -> list[str]:
    call = node.value if isinstance(node, ast.Assign) else None
    loads = isinstance(call, ast.Call) and last(call) == "load" and origin(parents, call.func) == "torch.load"
    return [ast.unparse(one) for one in node.targets] if loads and isinstance(node, ast.Assign) else []


def reads_position(value: ast.expr, loaded: set[str]) -> bool:
    """`state["epoch"] + 1`, or `state.get("step", 0)`, of what was loaded."""
    for node in ast.walk(value):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) in loaded:
            key = node.slice
        elif isinstance(node, ast.Call) and ast.unparse(node.func).removesuffix(".get") in loaded and node.args:
            key = node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and POSITION.search(key.value):
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
