"""The options that training frameworks and launchers take, and what is wrong with the words somebody gives them: an
unknown option, a value of the wrong kind, a choice that does not exist. The table is data/framework_flags.tsv.gz."""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from trainwright.catalog.tables import SHIPPED
from trainwright.errors import nearest

# The script that uses them adds options of its own: an unknown one is a mistake only where it resembles a known one.
OPEN = frozenset({
    "hf-trainer", "trl-grpo", "fairseq", "neuronx-distributed", "neuronx-distributed-training", "bionemo", "verl",
    "bionemo-recipes", "paxml", "llm-foundry", "maxtext", "megatron-bridge", "reference-ddp", "torchtitan", "nemo1",
    "neuronx-distributed-zero1", "picotron-json", "deepspeed-json", "bionemo1",
})  # fmt: skip
# Options as `key=value` words, without dashes.
KEYS = frozenset({
    "llm-foundry", "maxtext", "verl", "bionemo-recipes", "megatron-bridge", "neuronx-distributed-training", "nemo1",
    "deepspeed-json", "bionemo1",
})  # fmt: skip
# Script or program -> framework.
SCRIPTS = {
    **dict.fromkeys(("pretrain_gpt.py", "pretrain_bert.py", "pretrain_t5.py", "pretrain_mamba.py"), "megatron-lm"),
    "finetune_llama.py": "megatron-deepspeed",
    "create_config.py": "picotron-config",
    "train_esm2.py": "bionemo",
    "train_esm2": "bionemo",
    "main_dino.py": "dino",
    "fairseq-train": "fairseq",
    "run_llama_nxd.py": "neuronx-distributed",
    "tp_zero1_llama_hf_pretrain.py": "neuronx-distributed-zero1",
    "run_recipe.py": "megatron-bridge",
    "megatron_gpt_pretraining.py": "nemo1",
}
MODULES = {
    "torchtitan.train": "torchtitan",
    "verl.trainer.main_ppo": "verl",
    "maxtext.trainers.pre_train.train": "maxtext",
    "MaxText.train": "maxtext",
    "paxml.main": "paxml",
    "bionemo.esm2.scripts.train_esm2": "bionemo",
}
EXACT = frozenset({"torchtitan", "paxml"})  # their parsers take no shortened options
_INT = re.compile(r"[-+]?\d[\d_]*")
_FLOAT = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:inf|nan)", re.I)
_NAME = re.compile(r"--[A-Za-z][\w.-]*")
_KEY = re.compile(r"\+{0,2}([A-Za-z_][\w.]*)=(.*)", re.S)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `kind` is flag, switch (with a --no- twin), int, float, bool, list, or empty for any text."""

    name: str
    kind: str
    choices: tuple[str, ...]
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OptionProblem:
    """What is wrong with one word, where it stands among the words, and what to write instead."""

    index: int
    word: str
    what: str
    fix: str = ""


@cache
def _tables() -> dict[str, dict[str, Option]]:
    text = gzip.decompress((SHIPPED / "framework_flags.tsv.gz").read_bytes()).decode()
    tables: dict[str, dict[str, Option]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            framework, name, kind, choices, versions = line.split("\t")
            option = Option(name, kind, tuple(filter(None, choices.split("|"))), tuple(versions.split()))
            tables.setdefault(framework, {})[name] = option
    return tables


def frameworks() -> list[str]:
    """The frameworks and launchers whose options are known."""
    return sorted(_tables())


def options_of(framework: str) -> Mapping[str, Option]:
    """The options of a framework by name; empty where it is not known."""
    return _tables().get(framework, {})


def find_option(framework: str, name: str) -> Option | None:
    """The option that a framework takes a word for: by its name, with dashes for underscores where its parser allows
    that, or by an unambiguous beginning, as argparse does."""
    known = options_of(framework)
    if name in known:
        return known[name]
    for spelled in (name.replace("_", "-"), "--" + name[2:].replace("-", "_")):
        if spelled in known and framework in {"hf-trainer", "trl-grpo", "torchrun", "accelerate"}:
            return known[spelled]
    if name.startswith("--no-") and f"--{name[5:]}" in known and known[f"--{name[5:]}"].kind == "switch":
        return known[f"--{name[5:]}"]
    if framework in EXACT or not name.startswith("--"):
        return None
    begun = [option for option in known.values() if option.name.startswith(name)]
    return begun[0] if len(begun) == 1 else None


def framework_of(words: Sequence[str]) -> tuple[str, int]:
    """Which framework a command starts, by its script or module, and where its own words begin; ("", 0) if unknown."""
    for index, word in enumerate(words[:6]):
        if index and words[index - 1] == "-m" and word in MODULES:
            return MODULES[word], index + 1
        name = word.rsplit("/", 1)[-1]
        if name in SCRIPTS:
            forked = SCRIPTS[name] == "megatron-lm" and any(one.startswith("--deepspeed") for one in words)
            return "megatron-deepspeed" if forked else SCRIPTS[name], index + 1
    return "", 0


def check_options(framework: str, words: Sequence[str]) -> list[OptionProblem]:
    """What is wrong with the words that a framework's program is called with. A word with a variable in it is left."""
    if not framework or not words or not options_of(framework):
        return []
    problems = []
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else None
        problem = _checked(framework, index, word, following)
        if problem is not None:
            problems.append(problem)
    return problems


def _checked(framework: str, index: int, word: str, following: str | None) -> OptionProblem | None:
    name, equals, value = word.partition("=")
    if _NAME.fullmatch(name):
        option = find_option(framework, name)
        if option is None:
            return _unknown(framework, index, word, name)
        if equals:
            return value_problem(option, index, word, value, joined=True)
        return value_problem(option, index, word, following, joined=False)
    key = _KEY.fullmatch(word) if framework in KEYS else None
    if key is None:
        return None
    option = options_of(framework).get(key[1])
    if option is None:
        return None if word.startswith("+") else _unknown(framework, index, word, key[1])
    return value_problem(option, index, word, key[2], joined=True) if option.kind != "flag" else None


def _unknown(framework: str, index: int, word: str, name: str) -> OptionProblem | None:
    known = options_of(framework)
    if any("." in option and name.startswith(option + ".") for option in known):
        return None  # below a dictionary of the configuration
    near = nearest(name, known, 0.85 if framework in OPEN else 0.6)
    if not near and framework in OPEN:
        return None
    fix = f"did you mean {near!r}?" if near else f"see the options of {framework}"
    return OptionProblem(index, word, f"{framework} has no option {name!r}", fix)


def value_problem(option: Option, index: int, word: str, value: str | None, joined: bool) -> OptionProblem | None:
    """What is wrong with an option's value; `joined`: it is written `name=value`."""
    if option.kind in ("flag", "switch"):
        if joined and word.startswith("--"):
            return OptionProblem(index, word, f"{option.name} takes no value", f"write {option.name} alone")
        return None
    missing = value is None or (not joined and _NAME.fullmatch(value.partition("=")[0]) is not None)
    if missing:
        numeric = option.kind in ("int", "float")
        return OptionProblem(index, word, f"{option.name} needs a value", f"{option.name} VALUE") if numeric else None
    assert value is not None
    text = value.strip("'\"")
    if "$" in text or "{" in text or not text:
        return None  # filled in later
    if option.kind == "int" and not _INT.fullmatch(text):
        return OptionProblem(index, word, f"{option.name} takes a whole number, not {text!r}")
    if option.kind == "float" and not _FLOAT.fullmatch(text):
        return OptionProblem(index, word, f"{option.name} takes a number, not {text!r}")
    if option.choices and option.kind == "" and text not in option.choices:
        near = nearest(text, option.choices)
        fix = f"did you mean {near!r}?" if near else f"one of {', '.join(option.choices)}"
        return OptionProblem(index, word, f"{option.name} has no choice {text!r}", fix)
    return None
