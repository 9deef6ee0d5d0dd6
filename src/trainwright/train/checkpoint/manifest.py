"""The manifest of a checkpoint, which is complete when its manifest exists and every file has the size named there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from trainwright.errors import UserError
from trainwright.train.data.format import file_sha256
from trainwright.train.models.shape import ModelShape, is_published, lookup, shape_from

FORMAT = "trainwright-checkpoint"
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class File:
    """One file of a checkpoint."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a checkpoint, and what the trainer needs beside the tensors to resume exactly."""

    step: int
    model: Mapping[str, Any]  # the numbers of the model's shape
    trainer: Mapping[str, Any]  # samples seen, seeds, guards, configuration, plan
    files: tuple[File, ...]
    format: str = FORMAT

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files)

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=1) + "\n").encode()


def parse(text: bytes) -> Manifest | None:
    """A manifest from its JSON; None for anything else."""
    try:
        raw = json.loads(text)
        if raw.pop("format") != FORMAT:
            return None
        return Manifest(**{**raw, "files": tuple(File(**f) for f in raw["files"])})
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def damage(manifest: Manifest | None, sizes: Mapping[str, int]) -> str:
    """Why files of these sizes are not the checkpoint that the manifest describes; empty where they are."""
    if manifest is None:
        return f"{NAME} is missing or not readable"
    for file in manifest.files:
        if file.name not in sizes:
            return f"{file.name} is missing"
        if sizes[file.name] != file.size:
            return f"{file.name} has {sizes[file.name]:,} bytes, the manifest says {file.size:,}"
    return ""


def read_complete(folder: Path) -> Manifest | None:
    """The manifest of a folder that holds every file it names, at its full size; None where anything is missing."""
    try:
        manifest = parse((folder / NAME).read_bytes())
        if manifest and all((folder / f.name).stat().st_size == f.size for f in manifest.files):
            return manifest
    except OSError:
        return None
    return None


def describe_file(path: Path) -> File:
    return File(path.name, path.stat().st_size, file_sha256(path))


def classes_saved(manifest: Manifest) -> tuple[str, ...]:
    """The names of the classes that the model tells apart, by number; none where the checkpoint does not have them."""
    return tuple((manifest.trainer.get("classes") or {}).get("names") or ())


def shape_in(manifest: Manifest) -> ModelShape:
    """The shape of the model that a checkpoint holds. Earlier versions did not save the context."""
    saved = {key: value for key, value in manifest.model.items() if key not in ("lora_rank", "optimizer")}
    if "context" not in saved:
        saved["context"] = lookup(str(saved["name"])).context
    return shape_from(str(saved["name"]), saved)


def shape_numbers(shape: ModelShape) -> dict[str, Any]:
    """The numbers of a shape, as JSON types."""
    numbers = {k: v for k, v in asdict(shape).items() if k != "source"}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in numbers.items()}


def require_same_model(manifest: Manifest, model: Mapping[str, Any], where: str) -> None:
    """Refuse a checkpoint of another model, naming the first numbers that disagree (or the names, if only they do)."""
    apart = differing(manifest, model)
    if not apart:
        return
    key = next((k for k in apart if k not in ("name", "family")), apart[0])
    saved, wanted = manifest.model.get(key, 0 if key == "lora_rank" else None), model[key]
    names = f" ({manifest.model.get('name')}, {model.get('name')})" if "name" in apart and key != "name" else ""
    what = f"the checkpoint's model has {key} = {saved}, this run's model has {key} = {wanted}{names}"
    if key == "optimizer":
        what = f"the checkpoint was trained with --optimizer {saved}, this run has --optimizer {wanted}"
        same = f"--optimizer {saved}"
    else:
        same = same_adapters(manifest, wanted) if key == "lora_rank" else same_model(manifest)
    raise UserError(what, where=where, fix=f"{same}, or another --folder")


def differing(manifest: Manifest, model: Mapping[str, Any]) -> list[str]:
    """The numbers of a model that are not those of a checkpoint's."""
    later = {f.name: f.default for f in fields(ModelShape) if f.default is not MISSING}  # than the checkpoint's version
    saved_model = {"lora_rank": 0, **later, **manifest.model}
    apart = [key for key in model if saved_model.get(key, model[key]) != model[key]]
    if model.get("position") != "learned":
        apart = [key for key in apart if key != "context"]  # no parameter depends on it
    if not all(is_published(str(name)) for name in (manifest.model.get("name"), model.get("name"))):
        apart = [key for key in apart if key != "name"]  # a model from a file has the name of the file
    return apart


def same_adapters(manifest: Manifest, wanted: int) -> str:
    """The options that continue a run of adapters, which need their base; or one without them."""
    rank = manifest.model.get("lora_rank", 0)
    return f"--lora-rank {rank}" + (f" --base {base_place(manifest)}" if rank and not wanted else "")


def base_place(manifest: Manifest) -> str:
    """Where the base of a checkpoint lay."""
    pin = manifest.trainer.get("base") or {}
    return str(pin.get("place") or manifest.trainer.get("config", {}).get("base", ""))


def same_model(manifest: Manifest) -> str:
    """The option that names a checkpoint's model: as the run named it, or as the catalogue does, where that is still
    the same model."""
    for name in (manifest.trainer.get("config", {}).get("model"), manifest.model.get("name")):
        try:
            if name and not differing(manifest, shape_numbers(lookup(str(name)))):
                return f"--model {name}"
        except (UserError, OSError):
            continue
    return "--model with the file or folder of that model"
