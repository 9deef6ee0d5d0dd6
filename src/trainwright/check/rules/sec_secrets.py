"""SEC: secrets in files and on command lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import zip_longest

from trainwright.check.model import Command, EnvVar, File, Value
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.tables import table
from trainwright.spec.source import Span


@cache
def _secrets() -> list[tuple[re.Pattern[str], str]]:
    return [(re.compile(row["pattern"]), row["what"]) for row in table("access")["secret"]]


_QUICK = re.compile(r"PRIVATE KEY-----|AKIA|ASIA|hf_|gh[pous]_|github_pat_|nvapi-")
_TOKEN_NAME = re.compile(
    r"(?:HF_TOKEN|HUGGING_?FACE\w*TOKEN|WANDB_API_KEY|NGC_API_KEY|AWS_SECRET_ACCESS_KEY|NEPTUNE_API_TOKEN|COMET_API_KEY)$"
)
_ACCOUNT = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}):")
_LOOKS_SECRET = re.compile(r"[A-Za-z0-9/+_-]{30,}={0,2}")  # base64 may end in =
# In a spec of ours a reference takes the place of any value, so a name that says what it holds is enough.
_WRITTEN_OUT = re.compile(r"(?![/.~]|[a-z0-9]+://)(?=.*[A-Za-z])[^\s$]{8,}")


@rule("SEC003", "error")
def no_secret_is_written_down(file: File) -> Iterator[Problem]:
    """A file must not contain a secret.

    Private keys, AWS access keys, Hugging Face, GitHub and NGC tokens, and values of variables that hold one, on
    command lines too. An account id in an ARN is no secret, but ties a shared file to one account: it is reported once
    per file, as information; AWS's own accounts are not reported.

    Why: files are committed, copied and pasted; whoever reads one has the secret. 23.8 million new secrets were
    found in public commits of 2024, and 70 % of those found in 2022 were still valid. A token on a command line is
    visible to every user of the node in `ps`.

    Fix: put it into Secrets Manager or a Kubernetes Secret and refer to it; then revoke the one that was written down.

    Source: a private key and account ids are committed in public training repositories; GitGuardian, State of
    Secrets Sprawl 2025.

    When to ignore: the value is a documented example.
    """
    reported: set[int] = set()
    if _QUICK.search(file.text):
        for pattern, what in _secrets():
            for match in pattern.finditer(file.text):
                if not _made_up(match[0]):
                    reported.add(match.start())
                    yield problem(
                        _span(file.text, match.start(), match.end()),
                        f"{what} is written in this file",
                        "remove it, revoke it, and read it from a secret",
                    )
    for env in file.all_env:
        if _is_written_out(file, env):
            span = env.value.span
            if not any(_span(file.text, start, start).line == span.line for start in reported):
                reference = f"refer to it: `{env.name}: {{secret: {{env: {env.name}}}}}`"
                yield problem(
                    env.value,
                    f"the value of {env.name} is written in this file",
                    reference if file.format == "spec" else "remove it and read it from a secret",
                )
    yield from _in_flags(file)
    yield from _account(file)


def _is_written_out(file: File, env: EnvVar) -> bool:
    if not env.value.known or _made_up(env.value.value):
        return False
    if file.format == "spec":
        from trainwright.spec.words import SECRET_NAME  # with pydantic, which a foreign file is checked without

        if SECRET_NAME.match(env.name):
            return _WRITTEN_OUT.fullmatch(env.value.value) is not None
    return is_secret(env)


def is_secret(env: EnvVar) -> bool:
    """Whether the value of a variable for a token looks like one: this rule then reports it, in any kind of file."""
    written = env.value.known and not _made_up(env.value.value)
    return written and _TOKEN_NAME.match(env.name) is not None and bool(_LOOKS_SECRET.fullmatch(env.value.value))


def _in_flags(file: File) -> Iterator[Problem]:
    """Secrets among the words of a command line of ours (`--set`, or after `--`), which stand in no file yet."""
    words = [word for job in file.jobs for command in job.commands for word in command.words]
    yield from _in_options(file, words)
    for value in (*words, *(env.value for env in file.all_env)):
        for pattern, what in _secrets() if value.span.source else ():
            match = pattern.search(value.value)
            if match is not None and not _made_up(match[0]):
                yield problem(
                    Value("", replace(value.span, source=value.span.source.replace(match[0], "…"))),
                    f"{what} is among the arguments", "refer to it in the job: `env: {NAME: {secret: {env: NAME}}}`",
                )  # fmt: skip


def _in_options(file: File, words: list[Value[str]]) -> Iterator[Problem]:
    """`--api-key VALUE` and `--api-key=VALUE` of a job of ours. A `--token` may be one of a vocabulary: only a long
    value is taken for a secret there."""
    if file.format != "spec":
        return
    from trainwright.spec.words import SECRET_NAME  # with pydantic, which a foreign file is checked without

    for word, following in zip_longest(words, words[1:]):
        option, equals, value = word.value.partition("=")
        secret = value if equals else following.value if following is not None else ""
        name = option.lstrip("-").replace("-", "_")
        if option == name or not SECRET_NAME.match(name) or _made_up(secret):
            continue
        pattern = _LOOKS_SECRET if name.lower().endswith("token") else _WRITTEN_OUT
        if pattern.fullmatch(secret) and not any(known_form.search(secret) for known_form, _ in _secrets()):
            yield problem(
                Value("", replace(word.span, source=word.span.source.replace(secret, "…"))),
                f"the value of {option} is among the arguments",
                "refer to it in the job: `env: {NAME: {secret: {env: NAME}}}`",
            )


def _made_up(secret: str) -> bool:
    """`hf_xxxx` and the keys of AWS's documentation, which end in EXAMPLE."""
    return secret.endswith("EXAMPLE") or set(secret.split("_", 1)[-1].lower()) <= set("x*")


def _digest(account: str) -> str:
    return hashlib.sha256(account.encode()).hexdigest()[:12]


def _account(file: File) -> Iterator[Problem]:
    for match in _ACCOUNT.finditer(file.text):
        accounts = table("access")["accounts"]
        if match[1] not in accounts["examples"] and _digest(match[1]) not in accounts["aws"]:
            yield problem(
                _span(file.text, match.start(1), match.end(1)),
                f"account {match[1][:4]}… is written in this file",
                "refer to the account where the file is shared: a parameter, or ${AWS::AccountId}",
                level="info",
            )
            return


def _span(text: str, start: int, end: int) -> Span:
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return Span(line, column, line, column + (end - start))


_LOGINS = {("huggingface-cli", "login"), ("hf", "auth"), ("hf", "login"), ("docker", "login"), ("wandb", "login")}
_SECRET_OPTIONS = ("token", "hf_token", "password", "p", "wandb_api_key", "api_key")
_IN_ENVIRONMENT = {"huggingface-cli": "HF_TOKEN", "hf": "HF_TOKEN", "wandb": "WANDB_API_KEY"}


@rule("SEC005", "warning")
def secrets_stay_off_command_lines(file: File) -> Iterator[Problem]:
    """Tokens and passwords must not be command line arguments.

    `huggingface-cli login --token`, `wandb login KEY`, `docker login -p` and `--hf_token` show the secret to every user
    of the node, in `ps` and in the accounting database of Slurm. In a Dockerfile the secret stays in the history of the
    image.

    Why: whoever can log in to the node reads it (`/proc/PID/cmdline` has mode 0444), and so does whoever can pull
    the image.

    Fix: both libraries read HF_TOKEN and WANDB_API_KEY from the environment; `docker login --password-stdin`; `RUN
    --mount=type=secret` in a Dockerfile.

    Source: distillation and verl launchers of awsome-distributed-ai; Docker documentation, build secrets;
    proc_pid_cmdline(5).

    When to ignore: the command runs in a throw-away container that nobody else can see.
    """
    for script, command in ((one, c) for one in file.scripts for c in one.commands):
        words = [word.value for word in command.words[:2]]
        shared = script.kind in ("sbatch", "dockerfile") or "srun" in file.text  # elsewhere the node may have one user
        if len(words) == 2 and (words[0], words[1]) in _LOGINS:
            yield from _login(command, shared)
        elif _TRAINS.match(command.program):
            yield from _given_tokens(command, shared)


_TRAINS = re.compile(r"(python3?(\.\d+)?|torchrun|accelerate|deepspeed|composer)$")
_TOKEN_OPTIONS = {
    "hf_token": "HF_TOKEN", "huggingface_token": "HF_TOKEN", "hf_access_token": "HF_TOKEN", "hf_api_token": "HF_TOKEN",
    "wandb_api_key": "WANDB_API_KEY", "wandb_key": "WANDB_API_KEY",
}  # fmt: skip
_NO_TOKEN = re.compile(r"(|none|null|empty|true|false|<.*>|your.*|.*\.txt|.*/.*)$", re.IGNORECASE)


def _given_tokens(command: Command, shared: bool) -> Iterator[Problem]:
    """`--hf_token $HF_TOKEN`: the shell writes the value into the command line of every rank."""
    for option, variable in _TOKEN_OPTIONS.items():
        secret = command.options.get(option)
        if secret is not None and not _NO_TOKEN.match(secret.value.strip("'\"")):
            yield problem(
                secret,
                f"--{option} puts a secret on the command line, visible to every user of the node",
                f"set {variable} in the environment; the library reads it",
                level=None if shared or secret.known else "info",
            )


def _login(command: Command, shared: bool) -> Iterator[Problem]:
    secret = next((command.options[name] for name in _SECRET_OPTIONS if command.options.get(name)), None)
    if secret is None and command.program == "wandb":
        secret = next((word for word in command.words[2:] if not word.value.startswith("-")), None)
    if secret is None or not secret.value or secret.value.startswith("-"):
        return
    name = _IN_ENVIRONMENT.get(command.program)
    yield problem(
        secret,
        f"a secret on the command line of {command.program} is visible to every user of the node",
        f"set {name} in the environment; no login is needed" if name else "use --password-stdin",
        level=None if shared or secret.known else "info",
    )
