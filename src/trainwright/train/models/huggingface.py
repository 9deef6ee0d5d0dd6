"""A model as a Hugging Face folder: safetensors, in one or several files, config.json and tokenizer. Tensors are
converted one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainwright.errors import UserError
from trainwright.train.data.image_samples import decoded_side
from trainwright.train.data.multicrop import MEAN, OTHER_MEAN, OTHER_SPREAD, SPREAD
from trainwright.train.disk import new_folder
from trainwright.train.models import model_class
from trainwright.train.models.hf_config import config_of, shape_of
from trainwright.train.models.hf_encoders import spellings
from trainwright.train.models.hf_layout import Read, from_huggingface, to_huggingface
from trainwright.train.models.hf_tokenizer import export_tokenizer
from trainwright.train.models.hf_vision import label_names
from trainwright.train.models.safetensors import TensorFile, write
from trainwright.train.models.shape import ModelShape

if TYPE_CHECKING:
    pass

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
PROCESSOR, BILINEAR = "preprocessor_config.json", 2
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parameter_sizes(shape: ModelShape) -> dict[str, torch.Size]:
    """Every parameter of a model (and the biases of its routers), in order, without memory for any."""
    with torch.device("meta"):
        model = model_class(shape)(shape)
    return {name: tensor.shape for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def write_folder(
    shape: ModelShape,
    read: Read,
    folder: Path,
    dtype: str = "float32",
    file_bytes: int = 5 << 30,
    run: Path | None = None,
    ids: dict[str, Any] | None = None,
    classes: Sequence[str] = (),
    processed: bool = False,
) -> None:
    """Write the model whose parameters `read` gives by name, with the tokenizer of `run`, the token ids `ids` and the
    names of its classes; `processed`: and with how the trainer prepares images. The folder appears when complete."""
    total = sum(prod(size) for size in parameter_sizes(shape).values()) * DTYPES[dtype].itemsize
    with new_folder(folder, total) as beside:
        files = _split(parameter_sizes(shape), DTYPES[dtype].itemsize, file_bytes)
        index: dict[str, str] = {}
        for number, names in enumerate(files, 1):
            name = WEIGHTS if len(files) == 1 else f"model-{number:05}-of-{len(files):05}.safetensors"
            sizes = _write_file(shape, read, names, beside / name, DTYPES[dtype])
            index.update(dict.fromkeys(sizes, name))
        if len(files) > 1:
            text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1)
            (beside / INDEX).write_text(text)
        # What the model itself fixes wins: RoBERTa counts positions from its padding token.
        config, own = dict(ids or {}), config_of(shape, dtype)
        mask, pad = config.pop("mask_token_id", None), config.get("pad_token_id")
        config |= own
        if pad is not None and shape.kind != "decoder" and shape.family != "roberta":
            config["pad_token_id"] = pad
        if mask is not None and "mask_token_id" in own:
            config["mask_token_id"] = mask  # the run's: the data need not be in ESM-2's alphabet
        if classes and "id2label" in own:
            config |= label_names(shape.vocab, classes)
        (beside / CONFIG).write_text(json.dumps(config, indent=2) + "\n")
        if processed and shape.kind == "vision":
            (beside / PROCESSOR).write_text(json.dumps(processor_of(shape), indent=2) + "\n")
        export_tokenizer(run, beside)


def processor_of(shape: ModelShape) -> dict[str, Any]:
    """How the trainer makes a model's input of an image when it evaluates, for transformers' AutoImageProcessor."""
    colours = shape.channels == len(MEAN)
    return {
        "image_processor_type": "BitImageProcessor",  # the one that cuts the middle out of an image of any proportions
        "do_convert_rgb": colours,
        "do_resize": True,
        "size": {"shortest_edge": decoded_side(shape.image)},
        "resample": BILINEAR,
        "do_center_crop": True,
        "crop_size": {"height": shape.image, "width": shape.image},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(MEAN) if colours else [OTHER_MEAN] * shape.channels,
        "image_std": list(SPREAD) if colours else [OTHER_SPREAD] * shape.channels,
    }


def _split(sizes: dict[str, torch.Size], item: int, file_bytes: int) -> list[list[str]]:
    """Parameter names by file, each file under the limit unless a single tensor is over it."""
    files: list[list[str]] = [[]]
    room = file_bytes
    for name, size in sizes.items():
        room -= prod(size) * item
        if room < 0 and files[-1]:
            files.append([])
            room = file_bytes - prod(size) * item
        files[-1].append(name)
    return files


def _write_file(
    shape: ModelShape, read: Read, names: list[str], path: Path, dtype: torch.dtype
) -> dict[str, torch.Size]:
    own = parameter_sizes(shape)

    def empty_one(name: str) -> Tensor:
        return torch.empty(own[name], device="meta")

    empty = (to_huggingface(shape, name, empty_one(name), empty_one) for name in names)
    sizes = {theirs: tensor.shape for pieces in empty for theirs, tensor in pieces.items()}

    def stream() -> Iterator[tuple[str, Tensor]]:
        for name in names:
            yield from to_huggingface(shape, name, read(name), read).items()

    write(path, sizes, dtype, stream())
    return sizes


def read_folder(folder: Path, model: str = "") -> tuple[ModelShape, Callable[[str], Tensor]]:
    """The shape of a Hugging Face folder, and a function that gives our parameters by name, in fp32."""
    if not (folder / CONFIG).is_file():
        raise UserError(f"no {CONFIG} in {folder}", fix="name a folder that transformers wrote")
    shape = shape_of(json.loads((folder / CONFIG).read_text()), model, str(folder / CONFIG))
    files = [TensorFile(path) for path in sorted(folder.glob("*.safetensors"))]
    where = {name: file for file in files for name in file.entries}

    def theirs(name: str) -> Tensor:
        # Some writers leave the prefix of the model's own class out.
        for candidate in (*spellings(name), name.removeprefix("transformer."), name.removeprefix("model.")):
            if candidate in where:
                return where[candidate].read(candidate)
        raise UserError(f"tensor {name} is missing", where=str(folder))

    sizes = parameter_sizes(shape)

    def ours(name: str) -> Tensor:
        tensor = from_huggingface(shape, name, theirs).to(torch.float32)
        if tensor.shape != sizes[name]:
            raise UserError(
                f"{name} is {tuple(tensor.shape)}, {shape.name} needs {tuple(sizes[name])}", where=str(folder)
            )
        return tensor

    return shape, ours
