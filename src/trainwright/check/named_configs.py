"""Which configuration files a launch command names: by an option, in Hydra's way, or as the script's first argument."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.check.model import Command, Value

_OPTIONS = ("job.config_file", "config_file", "config", "deepspeed", "deepspeed_config")
_HERE = ("$PWD", "${PWD}", "$(pwd)")
_YAML = (".yaml", ".yml")


def named_configs(launch: Command) -> Iterator[tuple[Value[str], str]]:
    """Each file's name, where it is written, and its path from the launcher."""
    for name in _OPTIONS:
        at = launch.options.get(name)
        if at is not None and at.known:
            yield at, at.value
    script = next((i for i, word in enumerate(launch.words) if word.value.endswith(".py")), None)
    if script is None:
        return
    yield from _of_hydra(launch, launch.words[script].value)
    after = launch.words[script + 1] if script + 1 < len(launch.words) else None
    if after is not None and after.known and after.value.endswith(_YAML):
        yield after, after.value


def _of_hydra(launch: Command, script: str) -> Iterator[tuple[Value[str], str]]:
    """A relative `--config-path` counts from the script's directory; without one the script's own default holds."""
    at, folder = launch.options.get("config_name"), launch.options.get("config_path")
    beside = folder is not None and (folder.value in _HERE or (folder.value in (".", "./") and "/" not in script))
    changed = any(word.value.startswith(("+", "~")) for word in launch.words)  # keys are added or removed
    if at is not None and at.known and beside and not changed:
        yield at, at.value if at.value.endswith(_YAML) else f"{at.value}.yaml"
