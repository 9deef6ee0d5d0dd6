"""SEC: secrets among the arguments of commands, which other users of the node and readers of the image see."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.made_up import is_made_up
from trainwright.check.model import Command, File, ShellScript, Value
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.sec_images import kept_credentials
from trainwright.check.rules.sec_secrets import holds_example, holds_secret

_LOGINS = {("huggingface-cli", "login"), ("hf", "auth"), ("hf", "login"), ("docker", "login"), ("wandb", "login")}
_SECRET_OPTIONS = ("token", "hf_token", "password", "p", "wandb_api_key", "api_key")
_IN_ENVIRONMENT = {"huggingface-cli": "HF_TOKEN", "hf": "HF_TOKEN", "wandb": "WANDB_API_KEY"}
_TRAINS = re.compile(r"(python3?(\.\d+)?|torchrun|accelerate|deepspeed|composer)$")
_TOKEN_OPTIONS = {
    "hf_token": "HF_TOKEN", "huggingface_token": "HF_TOKEN", "hf_access_token": "HF_TOKEN", "hf_api_token": "HF_TOKEN",
    "wandb_api_key": "WANDB_API_KEY", "wandb_key": "WANDB_API_KEY",
}  # fmt: skip
_NO_TOKEN = re.compile(r"(|none|null|empty|true|false|<.*>|your.*|.*\.txt|.*/.*)$", re.IGNORECASE)
# For a person to fill in; the reader of a public file may also have masked a real one with letters x.
_TO_FILL_IN = re.compile(r"[<\[{]|\.\.\.|\byour|your_|change_?me|insert|replace|(token|key)_?here|\*{3}", re.IGNORECASE)
_LEAST = 20  # characters of a token; a password may be shorter
_MASKED = re.compile(r"(hf_|wandb_)?x{3,}", re.IGNORECASE)


@rule("SEC005", "warning")
def secrets_stay_off_command_lines(file: File) -> Iterator[Problem]:
    """Tokens and passwords must not be command line arguments.

    `huggingface-cli login --token`, `wandb login KEY`, `docker login -p` and `--hf_token` show the secret to every user
    of the node, in `ps` and in the accounting database of Slurm. In a Dockerfile the secret stays in the history of the
    image, and in the file that a login writes; so does one that `ENV` takes from an `ARG`, and a file with credentials
    (`.aws`, `id_rsa`, `.netrc` …) that is copied into the last stage. A note where the node has no other users or a
    value is still to be filled in.

    Why: whoever can log in to the node reads it (`/proc/PID/cmdline` has mode 0444), and so does whoever can pull
    the image.

    Fix: both libraries read HF_TOKEN and WANDB_API_KEY from the environment; `docker login --password-stdin`; `RUN
    --mount=type=secret` in a Dockerfile.

    Source: distillation and verl launchers of awsome-distributed-ai; Docker documentation, build secrets;
    proc_pid_cmdline(5).

    When to ignore: the command runs in a throw-away container that nobody else can see.
    """
    yield from kept_credentials(file)
    for script, command in ((one, c) for one in file.scripts for c in one.commands):
        words = [word.value for word in command.words[:2]]
        if len(words) == 2 and (words[0], words[1]) in _LOGINS:
            yield from _login(file, script, command)
        elif _TRAINS.match(command.program):
            yield from _given_tokens(file, script, command)


def _level(file: File, script: ShellScript, command: Command, secret: Value[str]) -> Level | None:
    """A note where only the caller sees the command line: elsewhere the node may have one user."""
    text = secret.value.strip("'\"")
    lines = file.lines
    line = lines[secret.span.line - 1] if secret.span.line <= len(lines) else ""
    if secret.known and (_TO_FILL_IN.search(text) or re.search(r"<[^<>|&;]+>", line)):
        return "info"
    if secret.known and len(text) >= _LEAST and is_made_up(text):
        return "info"
    if script.kind == "dockerfile":
        return "info" if _mounts_a_secret(file, command) else None
    if _MASKED.fullmatch(text) or holds_example(file, text):
        return "info"
    whole = any(n == "exclusive" or (n == "mem" and v.value == "0") for n, v in script.directives)
    shared = (script.kind == "sbatch" or "srun" in file.text) and not whole
    return None if shared or secret.known else "info"


def _mounts_a_secret(file: File, command: Command) -> bool:
    """Whether the RUN around a command gets the secret for its own time only."""
    lines, last = file.lines, min(command.span.line, len(file.lines))
    start = next((at for at in range(last - 1, -1, -1) if re.match(r"\s*RUN\b", lines[at], re.IGNORECASE)), 0)
    return "type=secret" in "\n".join(lines[start:last])


def _given_tokens(file: File, script: ShellScript, command: Command) -> Iterator[Problem]:
    """`--hf_token $HF_TOKEN`: the shell writes the value into the command line of every rank."""
    for option, variable in _TOKEN_OPTIONS.items():
        secret = command.options.get(option)
        if secret is not None and not _NO_TOKEN.match(secret.value.strip("'\"")) and not _is_reported(file, secret):
            where = (
                "of the image's history" if script.kind == "dockerfile" else "that `ps` shows to every user of the node"
            )
            revoked = "revoke it, " if secret.known else ""  # it is written in the file
            yield problem(
                secret,
                f"--{option} puts a secret on the command line {where}",
                f"{revoked}let the program read {variable} from the environment, and leave the option out",
                level=_level(file, script, command, secret),
                why=reasons.IN_THE_IMAGE if script.kind == "dockerfile" else "",
            )


def _is_reported(file: File, secret: Value[str]) -> bool:
    """A token that is written in the file is a finding of SEC003, whatever the command does with it."""
    return secret.known and holds_secret(file, secret.value)


def _login(file: File, script: ShellScript, command: Command) -> Iterator[Problem]:
    secret = next((command.options[name] for name in _SECRET_OPTIONS if command.options.get(name)), None)
    if secret is None and command.program == "wandb":
        host = command.options.get("host")
        words = (word for word in command.words[2:] if not word.value.startswith("-"))
        secret = next((word for word in words if host is None or word.value != host.value), None)
    if secret is None or not secret.value or secret.value.startswith("-") or _is_reported(file, secret):
        return
    level = _level(file, script, command, secret)
    name = _IN_ENVIRONMENT.get(command.program)
    if name == "WANDB_API_KEY" and "host" in command.options:
        name = "WANDB_API_KEY and WANDB_BASE_URL"
    if script.kind == "dockerfile":
        what = (
            f"the secret that {command.program} gets stays in the image: in its history, and where the login writes it"
        )
        fix = "log in outside the image"
        if name:
            fix = f"set {name} when the container starts; no login is needed"
            fix += " (for a command of the build use RUN --mount=type=secret)"
    else:
        what = f"`ps` shows a secret on the command line of {command.program} to every user of the node"
        fix = f"remove the login, and set {name} in the environment" if name else "use --password-stdin"
    if secret.known:
        what = f"the secret that {command.program} gets is written in this file"
        fix = f"revoke it, {fix}" if name and script.kind != "dockerfile" else f"remove it, revoke it, and {fix}"
    if "add_to_git_credential" in command.options:
        level, fix = "info", "log in once by hand, where nobody else reads the command line"  # git needs the login
    why = reasons.IN_THE_IMAGE if script.kind == "dockerfile" else ""
    yield problem(secret, what, fix, level=level, why=why)
