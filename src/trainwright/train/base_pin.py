"""What the base of a run was. Adapters mean nothing without the weights they were trained on, nor does DPO without its
reference: each checkpoint of such a run says where its base lay and what it was; resume and export take no other."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.checkpoint.manifest import Manifest, read_complete
from trainwright.train.checkpoint.stores import CheckpointStore, open_store
from trainwright.train.models.huggingface import CONFIG
from trainwright.train.models.safetensors import fingerprint
from trainwright.train.models.saved_weights import saved_to

FOLDER, CHECKPOINT = "folder", "checkpoint"
RANDOM = "random"  # as --base: adapters on random weights, to measure speed
WORDS = {FOLDER: "a Hugging Face folder", CHECKPOINT: "a checkpoint", RANDOM: "random weights"}
READERS = 8  # files whose fingerprints are taken at a time
KINDS = "a Hugging Face folder, a run or a checkpoint"


@dataclass(frozen=True, slots=True)
class Base:
    """Weights that a run starts from. `contents` is what they are compared by, whatever the place: of a Hugging Face
    folder the fingerprint of each file, of a checkpoint the checksums in its manifest, of random weights their seed."""

    kind: str
    place: str  # an absolute path (of a run: where its checkpoints are), s3://…, or `random`
    contents: Mapping[str, str]
    step: int | None = None  # of a checkpoint

    def __str__(self) -> str:
        return self.place if self.step is None else f"{self.place}, step {self.step}"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What a user can do about a base that is not as it was."""

    moved: str  # it lies elsewhere
    other: str  # it is lost: use its copy, or do without it
    first: str  # another one was named, and the first one is still there; {} is its place


RESUME = Remedy(
    "--base PATH with the place where it is now",
    "restore it, or --base PATH with a copy of what it was, or another --folder",
    "--base {}, or another --folder",
)
EXPORT = Remedy(
    "export --base PATH with the place where it is now",
    "restore it, or export --base PATH with a copy of what it was",
    "leave --base out: {} is as it was",
)
INNER = Remedy(  # the base of a base, which no option names
    "put it back, or a symbolic link to the place where it is now",
    "restore it",
    "restore it",
)
FIRST = Remedy(f"--base with {KINDS}", "", "")


def depends_on_base(config: Mapping[str, Any]) -> bool:
    """Whether checkpoints of a run with this configuration mean nothing without its base."""
    return bool(config.get("lora_rank")) or config.get("objective") == "dpo"


def absolute(base: str) -> str:
    return base if base in ("", RANDOM) or base.startswith("s3://") else os.path.abspath(base)


def describe(base: str, step: int | None = None, seed: int = 0, remedy: Remedy = FIRST) -> Base:
    """The base of that name as it is now: of a run its newest step, or the step given."""
    if base == RANDOM:
        return Base(RANDOM, RANDOM, {"seed": str(seed)})
    place = absolute(base)
    if not place.startswith("s3://") and not os.path.exists(place):
        raise UserError(f"the base {place} is not there", fix=remedy.moved)
    files = sorted(Path(base).glob("*.safetensors")) if (Path(base) / CONFIG).is_file() else []
    if files:
        with ThreadPoolExecutor(READERS) as pool:
            prints = list(pool.map(fingerprint, files))
        return Base(FOLDER, place, {f.name: p for f, p in zip(files, prints, strict=True)})
    one = read_complete(Path(base))
    if one is None:
        store = open_store(absolute(saved_to(base)), scratch=Path())
        place, one = store.where, store.manifest(_step_in(store, step, remedy))
    return Base(CHECKPOINT, place, {"manifest": _checksum(one)}, one.step)


def _step_in(store: CheckpointStore, step: int | None, remedy: Remedy) -> int:
    steps = store.complete_steps()
    if not steps:
        what = f"the base {store.where} holds neither weights with a {CONFIG} nor a complete checkpoint"
        raise UserError(what, fix=remedy.moved)
    if step is not None and step not in steps:
        there = f"step{'s' * (len(steps) > 1)} {', '.join(map(str, sorted(steps)))}"
        raise UserError(f"step {step} of the base {store.where} is not there (it has {there})", fix=remedy.other)
    return steps[0] if step is None else step


def _checksum(manifest: Manifest) -> str:
    """Of all files of a checkpoint, by their names, sizes and SHA-256, and of the base that they adapt."""
    files = sorted([f.name, f.size, f.sha256] for f in manifest.files)
    inner = base_of(manifest, remedy=INNER).contents if manifest.model.get("lora_rank") else None
    return hashlib.sha256(json.dumps([files, inner and dict(inner)], sort_keys=True).encode()).hexdigest()


def pin_in(manifest: Manifest) -> Base | None:
    """What a checkpoint says about its base; None in one of an earlier version, or of a run that needs none."""
    saved = manifest.trainer.get("base")
    return Base(**saved) if saved else None


def base_of(manifest: Manifest, named: str = "", remedy: Remedy = EXPORT) -> Base:
    """The base of a checkpoint, where it was or in the place that is named now; refused where it is another."""
    pin = pin_in(manifest)
    if pin is None:
        return describe(named or manifest.trainer["config"]["base"], remedy=remedy)
    return pin if pin.kind == RANDOM and not named else as_pinned(named or pin.place, pin, remedy)


def as_pinned(named: str, pin: Base, remedy: Remedy, seed: int = 0) -> Base:
    """The base in the place that is named, if it is the one of the pin."""
    now = describe(named, pin.step, seed, remedy)
    apart = difference(pin, now)
    if not apart:
        return now
    if now.kind == pin.kind == RANDOM:
        raise UserError(f"the random weights of the base have another seed: {apart}", fix=_seed_fix(pin))
    if now.place == pin.place:
        raise UserError(f"the base {now} has changed since the run began: {apart}", fix=remedy.other)
    what = f"the run was trained on another base ({pin}) than {now}: {apart}"
    raise UserError(what, fix=remedy.first.format(pin.place) if _is_intact(pin) else remedy.other)


def _seed_fix(pin: Base) -> str:
    return f"--seed {pin.contents['seed']}, or another --folder"


def _is_intact(pin: Base) -> bool:
    try:
        return pin.kind == RANDOM or not difference(pin, describe(pin.place, pin.step))
    except (UserError, OSError):
        return False


def difference(pin: Base, now: Base) -> str:
    """The first thing in which a base is not the one of the pin; empty where it is."""
    if pin.kind != now.kind:
        return f"it is {WORDS[now.kind]}, not {WORDS[pin.kind]}"
    if pin.step != now.step:
        return f"it is step {now.step}, not step {pin.step}"
    for name in sorted({*pin.contents, *now.contents}):
        before, after = pin.contents.get(name), now.contents.get(name)
        if after is None:
            return f"{name} is missing"
        if before is None:
            return f"{name} was not there"
        if before != after and pin.kind == RANDOM:
            return f"{after}, not {before}"
        if before != after:
            return f"{f'step {pin.step}' if pin.kind == CHECKPOINT else name} has other contents"
    return ""
