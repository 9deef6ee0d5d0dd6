"""Packs a table of framework options (CSV: framework, version_or_commit, option, type, default, choices, notes) into
the catalog: one line per option, with the versions that have it.

    python tools/pack_framework_flags.py flags.csv 2026-11

Rows of our own, for frameworks that the table does not have, are in tools/framework_flags_more.csv.
"""

from __future__ import annotations

import csv
import gzip
import re
import sys
from pathlib import Path

MORE = Path(__file__).with_name("framework_flags_more.csv")
TARGET = Path(__file__).parent.parent / "src/trainwright/catalog/data/framework_flags.tsv.gz"
# Name in the table -> the catalog's name.
NAMES = {
    "Megatron-LM": "megatron-lm",
    "Megatron-DeepSpeed": "megatron-deepspeed",
    "torchtitan": "torchtitan",
    "picotron": "picotron-json",
    "picotron/train.py": "picotron",
    "picotron/create_config.py": "picotron-config",
    "llm-foundry": "llm-foundry",
    "composer (Trainer)": "llm-foundry",
    "composer (launcher)": "composer",
    "deepspeed (launcher)": "deepspeed",
    "Megatron-Bridge/scripts/training/run_recipe.py": "megatron-bridge",
    "Megatron-Bridge (ConfigContainer)": "megatron-bridge",
    "Megatron-Bridge (model)": "megatron-bridge",
    "NeMo 1 megatron_gpt_config.yaml": "nemo1",
    "BioNeMo 1 pretrain.py": "bionemo1",
    "diffusion-benchmark benchmark.py": "diffusion-benchmark",
    "DeepSpeed (JSON)": "deepspeed-json",
    "reference:pytorch/optimum-neuron/llama3/src/train.py": "optimum-neuron",
    "Megatron-Bridge/scripts/performance": "megatron-bridge-performance",
    "NeMo2/scripts/performance": "nemo2-performance",
    "accelerate launch": "accelerate",
    "torchrun": "torchrun",
    "HF TrainingArguments": "hf-trainer",
    "dino main_dino.py": "dino",
    "MaxText": "maxtext",
    "paxml main": "paxml",
    "paxml lm_cloud (LmCloudSpmd2BLimitSteps)": "paxml",
    "bionemo ESM2 train_esm2": "bionemo",
    "bionemo-recipes esm2_native_te": "bionemo-recipes",
    "fairseq-train (RoBERTa recipe)": "fairseq",
    "fairseq-train (checkpoint+distributed groups)": "fairseq",
    "TRL GRPOConfig": "trl-grpo",
    "TRL vllm-serve": "trl-vllm-serve",
    "verl main_ppo": "verl",
    "verl main_ppo (keys used in reference)": "verl",
    "neuronx-distributed-training": "neuronx-distributed-training",
    "reference:pytorch/FSDP/src/model_utils/arguments.py": "reference-fsdp",
    "reference:pytorch/ddp/ddp.py": "reference-ddp",
}
SCRIPTS = {"run_llama_nxd.py": "neuronx-distributed", "tp_zero1_llama_hf_pretrain.py": "neuronx-distributed-zero1"}
KINDS = {"int": "int", "integer": "int", "float": "float", "flag": "flag", "bool_arg": "bool"}


def catalog_name(framework: str) -> str:
    return NAMES.get(framework) or SCRIPTS.get(framework.rpartition("/")[2], "")


def kind(row: dict[str, str]) -> str:
    plain = re.sub(r"Optional\[(\w+)\]|(\w+) \| None", r"\1\2", row["type"])
    if "BooleanOptionalAction" in row["notes"]:
        return "switch"
    if "nargs" in row["notes"] or plain.startswith("list"):
        return "list"
    return KINDS.get(plain, "")


def main(source: str, date: str) -> None:
    options: dict[tuple[str, str], dict[str, str]] = {}
    for file in (source, MORE):
        for row in csv.DictReader(Path(file).read_text(encoding="utf-8").splitlines()):
            name = catalog_name(row["framework"])
            if not name:
                continue
            entry = options.setdefault((name, row["option"]), {"kind": kind(row), "choices": "", "versions": ""})
            version = row["version_or_commit"].split("@")[0]
            if version not in entry["versions"].split():
                entry["versions"] = f"{entry['versions']} {version}".strip()
            stated = row["choices"].split("|")
            if len(stated) > 1 and all(re.fullmatch(r"[\w.+-]+", choice) for choice in stated):
                entry["choices"] = "|".join(dict.fromkeys(filter(None, [*entry["choices"].split("|"), *stated])))
    lines = [f"# source: the argument parsers of these frameworks\t{date}"]
    for (name, option), entry in sorted(options.items()):
        lines.append("\t".join([name, option, entry["kind"], entry["choices"], entry["versions"]]))
    with open(TARGET, "wb") as target, gzip.GzipFile(fileobj=target, mode="wb", mtime=0, filename="") as packed:
        packed.write(("\n".join(lines) + "\n").encode())
    print(f"{len(options)} options, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:3])
