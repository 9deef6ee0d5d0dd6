"""A framework as data: one file `recipes/frameworks/NAME.yaml` says how another trainer is started and under which name
each of our values reaches it. A recipe names it (`trainer: {framework: NAME}`) and adds what differs.

The file maps the framework's own options to values. A value is a literal, or a text with places: `"{steps}"`,
`"{checkpoint}/latest"`, `"{steps}ba"`. A text that is one place keeps the type of its value; an option whose place has
no value is left out; null removes an option that an earlier part set, and `"{null}"` writes null into the configuration
file; `true` is a switch without a value. There is no arithmetic in the file: what a framework derives from our values
(accumulation, samples of the whole run, the learning rate at the end) is a place of its own, computed in
`jobs/places.py`.

    options   words of the command line. The key is written as it is: `--seq-length` makes two words, `--port=` one,
              a key without dashes makes `key=value` (hydra, OmegaConf)
    file      keys of the configuration file, dots for nesting. `config:` names the file, and its ending the format
    env       environment variables, each with its reason
    prepare   the command that makes what it reads, or several with the word `&&` between them; `submit --dry-run` and
              `recipes show` print it
    models    the same four, by model (a pattern such as `llama3*`): its name or sizes in the framework's words
    when      the same four, by place and value: `when: {precision: {fp8: …}, tp: {">1": …}, data: {"builtin:*": …}}`.
              The first pattern that matches counts. A text that matches none cannot be said to this framework
    debug     the same four, for the debug size, and another `entry` where it needs one
    scripts   programs of ours for a framework that is a library: files beside this one, `{code}/NAME.py` on the nodes

Later parts win: the framework's own, models, when, then the recipe's trainer, then the arguments of the job."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from trainwright.errors import UserError, did_you_mean
from trainwright.spec.part import Part
from trainwright.spec.source import parse, read_text
from trainwright.spec.validate import validated

FOLDER = Path(__file__).with_name("frameworks")
HELPER = "run.py"
_PLAIN = re.compile(r"[\w@%+=:,./{}-]+")  # a word that the shell leaves as it is, braces around one name included
Value = Annotated[Any, Field(description="A literal, a text with places, a list or a mapping of those, or null.")]


class Variable(Part):
    """An environment variable and why it is set."""

    value: str = Field(description="Its value; places are filled in.")
    why: str = Field(description="The reason, which stands beside it in every script.")


class Settings(Part):
    """Options of a framework, in its own words."""

    options: dict[str, Value] = Field({}, description="Words of the command line.")
    file: dict[str, Value] = Field({}, description="Keys of the configuration file, dots for nesting.")
    env: dict[str, Variable] = Field({}, description="Environment variables, each with its reason.")
    prepare: tuple[str, ...] = Field((), description="The command that makes what it reads, words apart, with places.")

    def over(self, base: Settings) -> Settings:
        """These settings over others, key by key."""
        return Settings(
            options={**base.options, **self.options}, file={**base.file, **self.file}, env={**base.env, **self.env},
            prepare=self.prepare or base.prepare,
        )  # fmt: skip


class DebugSettings(Settings):
    """What differs for the debug size."""

    entry: tuple[str, ...] = Field((), description="Another program, such as one that makes sample data first.")
    scripts: tuple[str, ...] = Field((), description="Programs of ours that go with the run for it.")


class AdapterOptions(Part):
    """The framework's options for LoRA, so that predictions know what is trained."""

    rank: str = Field(description="The option that holds the rank of the adapters, or a word that stands for one.")
    words: dict[str, int] = Field({}, description="The rank that each such word stands for.")
    bits: str | None = Field(None, description="The option that holds the bits of a frozen weight.")


class MiniBatchOptions(Part):
    """The options of a framework that shares answers out over its data ranks: a misfit is refused before it runs."""

    prompts: str = Field(description="The option that holds the prompts of one update.")
    answers: str = Field(description="The option that holds the answers to each prompt.")


class Framework(Settings):
    """How one framework is started, and how our values reach it."""

    title: str = Field(description="Its name as its authors write it.")
    version: str = Field(description="The version that the options are of.")
    source: str = Field(description="Where its options and rules were read.")
    entry: tuple[str, ...] = Field(
        min_length=1, description="The program and its first words; `$NODE_RANK` and the like are the shell's."
    )
    start: Literal["torchrun", "rank", "node", "ray"] = Field(
        "torchrun",
        description="Who starts the ranks: torchrun on every node, the scheduler (one task per rank), the program "
        "itself (once per node), or a Ray cluster over the nodes with one driver.",
    )
    family: Literal["pytorch", "verl", "nemo", "megatron", "jax", "maxtext", "neuron"] = Field(
        description="The container family that holds it (`trainwright image container`)."
    )
    image: str | None = Field(None, description="Its name among the images of that family, where it is another one.")
    container: str | None = Field(None, description="The image it needs, where a job names none.")
    flags: str | None = Field(None, description="Its table among the known options, which `check` uses too.")
    options_from: Literal["source", "memory"] = Field(
        "source",
        description="Where that table comes from: the framework's own source, or, in part, memory: then nothing has "
        "judged the options.",
    )
    config_flags: str | None = Field(None, description="The table of its configuration file's keys, if another one.")
    log: str | None = Field(None, description="The format of its log, by the name of its reader.")
    profile: str | None = Field(None, description="The predictor's profile of it; without one it is not predicted.")
    config: str | None = Field(None, description="Name of its configuration file; `.toml`, `.json` or `.yaml`.")
    scripts: tuple[str, ...] = Field((), description="Programs of ours beside this file that go with the run.")
    resume: str = Field("", description="What makes a job that comes back go on from its newest checkpoint.")
    implied: tuple[str, ...] = Field((), description="Places that it derives by itself and takes no option for.")
    adapters: AdapterOptions | None = Field(None, description="Its options for LoRA.")
    mini_batch: MiniBatchOptions | None = Field(None, description="Its options for the size of an update.")
    saves_on_term: bool = Field(False, description="Whether it saves on SIGTERM, after its step, and ends.")
    s3: tuple[Literal["data", "checkpoint"], ...] = Field((), description="What it reads from S3 by its address.")
    spells_shape: bool = Field(False, description="Whether it is told a model's sizes one by one, not its name.")
    copies_kv_heads: bool = Field(False, description="Whether it copies key-value heads that are fewer than tp.")
    ranks_per_device: dict[str, int] = Field(
        {}, description="Ranks per accelerator where it is not one: a Trainium chip has several cores."
    )
    models: dict[str, Settings] = Field({}, description="Options by model; the first pattern that matches counts.")
    when: dict[str, dict[str, Settings]] = Field({}, description="Options by place and value.")
    debug: DebugSettings = Field(DebugSettings(), description="Options of the debug size.")

    def parts(self) -> list[Settings]:
        """Everything that may set an option."""
        return [self, *self.models.values(), *(one for by in self.when.values() for one in by.values())]


def matching(by_value: Mapping[str, Settings], value: Any) -> Settings | None:
    """The settings of the first pattern that a value matches."""
    if value is None:
        return None
    for pattern, settings in by_value.items():
        if pattern == ">1":
            if isinstance(value, int | float) and value > 1:
                return settings
        elif fnmatchcase(str(value), pattern):
            return settings
    return None


def shell_line(words: Iterable[str]) -> str:
    """The words of a preparation as a shell takes them; `&&` between two commands, and the braces of a place, stay."""
    return " ".join(word if word == "&&" or _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def script_text(name: str) -> str:
    """A program of ours that a framework's ranks run; `run.py` is the helper that any script may use."""
    path = FOLDER.parents[1] / name if name == HELPER else FOLDER / name
    return path.read_text(encoding="utf-8")


def frameworks() -> list[str]:
    """The frameworks that are known, by name."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


@cache
def framework(name: str) -> Framework:
    """A framework by name; a wrong name is a UserError."""
    if name not in frameworks():
        fix = did_you_mean(name, frameworks()) or f"there are: {', '.join(frameworks())}; `command:` takes any program"
        raise UserError(f"no framework {name!r}", fix=fix)
    path = FOLDER / f"{name}.yaml"
    return validated(Framework, parse(read_text(path), str(path))[0], str(path))
