"""Starts picotron's train.py with what it expects around it. picotron loads only the checkpoint that its file names, so
a job that comes back would start from zero: each rank names the newest whole one. It reads the model's files from a
folder under the working directory, wants a Hugging Face token even for public models, and imports flash-attn even where
it computes with the attention of PyTorch, which has that kernel too.

    python3 picotron_train.py /opt/picotron/train.py config.json

The file that train.py reads lies in memory: the token is never written to a disk."""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

# What picotron's model.py imports of flash-attn, and never calls with FLASH_ATTEN=0.
FLASH = {
    "flash_attn": "", "flash_attn.flash_attn_interface": "flash_attn_func",
    "flash_attn.layers": "", "flash_attn.layers.rotary": "apply_rotary_emb",
    "flash_attn.ops": "", "flash_attn.ops.triton": "", "flash_attn.ops.triton.layer_norm": "layer_norm_fn",
}  # fmt: skip
FILES = ["*.safetensors", "*.json", "*.model", "*.txt"]  # of a model's repository: weights and tokenizer


def newest(folder: Path, parts: int) -> str:
    """The newest step that every tensor and pipeline rank has written; empty where there is none."""
    steps = sorted((int(path.name) for path in folder.glob("*") if path.name.isdecimal()), reverse=True)
    whole = [step for step in steps if len(list((folder / str(step)).glob("weights_*.pth"))) >= parts]
    return str(folder / str(whole[0])) if whole else ""


def link_model(name: str, work: Path) -> None:
    """The model's files, from a folder or the Hugging Face cache, where train.py looks for them."""
    source = name
    if not Path(name).is_dir():
        from huggingface_hub import snapshot_download

        source = snapshot_download(name, allow_patterns=FILES)  # one rank per node downloads, the others wait for it
    place = work / "hf_model_safetensors" / name.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(Path(source).resolve())


def without_flash_attention(config: dict[str, Any]) -> None:
    """PyTorch's own attention, and empty modules for what is imported all the same."""
    config["environment"]["FLASH_ATTEN"] = "0"
    for name, function in FLASH.items():
        module = sys.modules[name] = ModuleType(name)
        module.__spec__, module.__path__ = ModuleSpec(name, None), []
        if function:
            setattr(module, function, None)


def main() -> None:
    program, source = sys.argv[1], Path(sys.argv[2])
    config = json.loads(source.read_text(encoding="utf-8"))
    spread = config["distributed"]
    config["checkpoint"]["load_path"] = newest(
        Path(config["checkpoint"]["save_dir"]), spread["tp_size"] * spread["pp_size"]
    )
    config["environment"]["HF_TOKEN"] = os.environ.get("HF_TOKEN", "")
    if find_spec("flash_attn") is None:
        without_flash_attention(config)
    own = os.memfd_create("picotron.json")
    os.write(own, json.dumps(config).encode())
    sys.path.insert(0, str(Path(program).parent))
    sys.argv = [program, "--config", f"/proc/self/fd/{own}"]
    with tempfile.TemporaryDirectory(prefix="picotron-") as work:
        link_model(config["model"]["name"], Path(work))
        os.chdir(work)
        runpy.run_path(program, run_name="__main__")
        os.chdir("/")


if __name__ == "__main__":
    main()
