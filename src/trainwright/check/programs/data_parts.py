"""Streams and samplers of a training script that do not give every rank its own part of the data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.programs.barriers import last
from trainwright.check.programs.python_names import Parents, bindings, origin
from trainwright.check.programs.sharded_states import sharded_models
from trainwright.check.programs.training_steps import Mistake
from trainwright.check.programs.unread_parameters import unread_words, used_arguments
from trainwright.check.programs.wrapped_models import wrapped

_BY_RANK = re.compile(r"rank|world|replica|process|node|shard_id|num_shards|distributed|mesh|\bdp_", re.IGNORECASE)
_RANDOM = re.compile(r"rand|shuffle|sample|seed|rng|perm|choice", re.IGNORECASE)
# Ranks that must read the same data, and data that are divided by node before.
_OTHER_RANKS = re.compile(
    r"tensor_parallel|parallelize_module|init_device_mesh|\btp_|pipeline|\bmpu\b|context_parallel", re.IGNORECASE
)
_BY_NODE = re.compile(r"node_?rank|group_?rank|nodeid|node_id|local_?world_?size", re.IGNORECASE)
_VALIDATION = re.compile(r"val|test|eval", re.IGNORECASE)
_RANK = re.compile(r"int\(os\.(environ\[|environ\.get\(|getenv\()'RANK'[^()]*[\])]\)")
_LOCAL = re.compile(r"(\w+\.)*\w*local_?rank\w*|int\(os\.environ(\[|\.get\()'LOCAL_RANK'.*", re.IGNORECASE)


def same_streams(parents: Parents, text: str) -> Iterator[Mistake]:
    """Loaders of an iterable dataset of this file that yields the same samples on every rank."""
    if "IterableDataset" not in text or not divides_nothing(parents, text):
        return
    streams = {node.name: node for node in parents if isinstance(node, ast.ClassDef) and _is_same(parents, node)}
    for call in (node for node in parents if streams and isinstance(node, ast.Call) and last(node) == "DataLoader"):
        given = call.args[0] if call.args else next((w.value for w in call.keywords if w.arg == "dataset"), None)
        maker = _made(parents, given) if given is not None else None
        stream = streams.get(ast.unparse(maker.func)) if maker is not None else None
        if maker is None or stream is None or _VALIDATION.search(ast.unparse(maker)):
            continue
        used = used_arguments(parents, stream, maker)
        if not _BY_RANK.search(_all_of(parents, used)):
            by = ", and get_worker_info divides it among the workers of one rank" if _by_worker(stream) else ""
            knows = "knows" if len(used) == len(maker.args) + len(maker.keywords) else "uses"
            what = f"every rank reads the same samples: {stream.name} {knows} no rank{by}"
            fix = "divide by rank and worker: part = rank * workers + worker, of world_size * workers parts"
            yield Mistake(call.func, what, fix, reasons.SAME_STREAM)


def _is_same(parents: Parents, node: ast.ClassDef) -> bool:
    """Whether a class of torch's iterable datasets knows neither ranks nor chance."""
    bases = [origin(parents, base) for base in node.bases]
    iterates = any(isinstance(one, ast.FunctionDef) and one.name == "__iter__" for one in node.body)
    if not iterates or len(bases) != 1 or not bases[0].startswith("torch.utils.data") or "Iterable" not in bases[0]:
        return False
    words = {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    words |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    words |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    words -= unread_words(parents, node)
    return not any(_BY_RANK.search(word) or _RANDOM.search(word) for word in words) and _opens_files(words)


def _opens_files(words: set[str]) -> bool:
    """Whether the class reads its samples itself: what a stream of another file gives, it may have divided."""
    return bool(words & {"open", "glob", "iterdir", "listdir", "memmap", "read_parquet", "ParquetFile", "fromfile"})


def _by_worker(node: ast.ClassDef) -> bool:
    return "get_worker_info" in ast.unparse(node)


def _made(parents: Parents, given: ast.expr) -> ast.Call | None:
    """The call that makes a dataset, itself or by its name."""
    if isinstance(given, ast.Name | ast.Attribute):
        values = bindings(parents, given)
        given = values[0] if len(values) == 1 and values[0] is not None else given
    return given if isinstance(given, ast.Call) else None


def _all_of(parents: Parents, arguments: list[ast.expr]) -> str:
    """Arguments of a call with what was given to their names."""
    names = [one for argument in arguments for one in ast.walk(argument) if isinstance(one, ast.Name)]
    values = [value for name in names for value in bindings(parents, name) if value is not None]
    return " ".join(ast.unparse(one) for one in (*arguments, *values))


def local_samplers(parents: Parents, text: str) -> Iterator[ast.Call]:
    """Samplers that divide the data by the ranks of one node: right where there is only one."""
    if "DistributedSampler" not in text or _BY_NODE.search(text):
        return
    for call in (node for node in parents if isinstance(node, ast.Call) and last(node) == "DistributedSampler"):
        words = {word.arg: word.value for word in call.keywords}
        rank, count = words.get("rank"), words.get("num_replicas")
        positional = dict(zip(("dataset", "num_replicas", "rank"), call.args, strict=False))
        rank, count = rank or positional.get("rank"), count or positional.get("num_replicas")
        local = rank is not None and _is_local(parents, rank) and not _is_misnamed(parents, rank)
        if local or (count is not None and ast.unparse(count).endswith("cuda.device_count()")):
            yield call


def _is_local(parents: Parents, rank: ast.expr) -> bool:
    """Whether an expression is the local rank by its name, or a name that is given it."""
    given = bindings(parents, rank) if isinstance(rank, ast.Name) else []
    values = [rank, *given] if len(given) == 1 else [rank]
    return any(value is not None and _LOCAL.fullmatch(ast.unparse(value)) is not None for value in values)


def _is_misnamed(parents: Parents, rank: ast.expr) -> bool:
    """Whether a name for the local rank holds the global one."""
    values = bindings(parents, rank) if isinstance(rank, ast.Name | ast.Attribute) else []
    return any(value is not None and _is_global(parents, value) for value in values)


def divides_nothing(parents: Parents, text: str) -> bool:
    """Whether every rank of the script trains a copy of one model, whose gradients are averaged."""
    return not _OTHER_RANKS.search(text) and bool(wrapped(parents) or sharded_models(parents))


def global_devices(parents: Parents) -> Iterator[ast.Call]:
    """`torch.cuda.set_device(rank)` of the number of a rank among those of all nodes."""
    for call in (node for node in parents if isinstance(node, ast.Call) and last(node) == "set_device"):
        if len(call.args) != 1 or origin(parents, call.func) != "torch.cuda.set_device":
            continue
        value: ast.expr | None = call.args[0]
        if isinstance(value, ast.Name):
            given = bindings(parents, value)
            value = given[0] if len(given) == 1 else None
        if value is not None and _is_global(parents, value):
            yield call


def _is_global(parents: Parents, value: ast.expr) -> bool:
    """`dist.get_rank()`, or RANK of the environment."""
    if isinstance(value, ast.Call) and not value.args and not value.keywords:
        return origin(parents, value.func) == "torch.distributed.get_rank"
    return _RANK.fullmatch(ast.unparse(value)) is not None
