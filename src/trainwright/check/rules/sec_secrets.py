"""SEC: secrets in files and on command lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import zip_longest

from trainwright.check.made_up import is_made_up, is_of_an_address
from trainwright.check.model import EnvVar, File, Value
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
_KEY_START = 200  # characters of a private key that tell it from an example
_ACCOUNT = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}):")
_LOOKS_SECRET = re.compile(r"[A-Za-z0-9/+_-]{30,}={0,2}")  # base64 may end in =
# In a spec of ours a reference takes the place of any value, so a name that says what it holds is enough.
_WRITTEN_OUT = re.compile(r"(?![/.~]|[a-z0-9]+://)(?=.*[A-Za-z])[^\s$]{8,}")


@rule("SEC003", "error")
def no_secret_is_written_down(file: File) -> Iterator[Problem]:
    """A file must not contain a secret.

    Private keys, AWS access keys, Hugging Face, GitHub and NGC tokens, and values of variables that hold one, on
    command lines too. The id of an AWS key without its secret is a note. An account id in an ARN is no secret, but ties
    a shared file to one account: it is reported once per file, as information; AWS's own accounts are not reported.

    Why: files are committed, copied and pasted; whoever reads one has the secret. 23.8 million new secrets were
    found in public commits of 2024, and 70 % of those found in 2022 were still valid. A token on a command line is
    visible to every user of the node in `ps`.

    Fix: put it into Secrets Manager or a Kubernetes Secret and refer to it; then revoke the one that was written down.

    Source: a private key and account ids are committed in public training repositories; GitGuardian, State of
    Secrets Sprawl 2025.

    When to ignore: the value is a documented example.
    """
    # Also of pods that start nothing we know.
    of_pods = (env for pod in file.pods for container in pod.containers for env in container.env)
    given = {(env.name, env.value.span): env for env in (*file.all_env, *of_pods)}
    written = [env for env in given.values() if _is_written_out(file, env)]
    paired = any(env.name == "AWS_SECRET_ACCESS_KEY" for env in written)
    texts: set[str] = set()
    for span, what, text in _known_forms(file):
        key_id = what == _KEY_ID
        if key_id and paired:
            continue  # said where the secret is
        texts.add(text)
        yield problem(
            span,
            f"{what} is written in this file",
            _fix(file, span) if not key_id or _has_secret_key(file.text) else "read it from the environment",
            level=None if not key_id or _has_secret_key(file.text) else "info",  # alone it opens nothing
        )
    for env in written:
        if not any(text in env.value.value for text in texts):
            reference = f"refer to it: `{env.name}: {{secret: {{env: {env.name}}}}}`"
            yield problem(
                env.value,
                f"the value of {env.name} is written in this file",
                reference if file.format == "spec" else _fix(file, env.value.span),
            )
    yield from _in_flags(file)
    yield from _account(file)


_KEY_ID = "an AWS access key id"
_OF_A_SECRET = re.compile(r"^[\"']?kind[\"']?:\s*[\"']?Secret\b", re.MULTILINE)
_SECRET_KEY = re.compile(r"secret[^\n]{0,30}?[=:\s\"']([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])", re.IGNORECASE)


def _fix(file: File, place: Span) -> str:
    """A manifest of a Secret is no safer place than another file."""
    lines = file.lines
    above = next((at for at in range(place.line - 1, 0, -1) if lines[at - 1].startswith("---")), 0)
    below = next((at for at in range(place.line, len(lines)) if lines[at].startswith("---")), len(lines))
    if _OF_A_SECRET.search("\n".join(lines[above:below])):
        return "remove it, revoke it, and create the Secret from the command line: kubectl create secret generic …"
    return "remove it, revoke it, and read it from a secret"


def _known_forms(file: File) -> Iterator[tuple[Span, str, str]]:
    """Where the file holds a text in the form of a secret, each secret once."""
    seen: set[str] = set()
    for match, what, is_example in _forms(file, file.text):
        if not is_example and match[0] not in seen:
            if "PRIVATE KEY" not in match[0]:  # the first line of every key
                seen.add(match[0])
            yield _span(file.text, match.start(), match.end()), what, match[0]


def _forms(file: File, text: str) -> Iterator[tuple[re.Match[str], str, bool]]:
    """What has the form of a secret in a text, and whether it is an example that opens nothing."""
    for pattern, what in _secrets() if _QUICK.search(text) else ():
        for match in pattern.finditer(text):
            body = text[match.end() : match.end() + _KEY_START] if "PRIVATE KEY" in match[0] else ""
            yield match, what, _is_example(file, body or match[0]) or is_of_an_address(text, match.start())


def holds_secret(file: File, text: str) -> bool:
    """Whether SEC003 reports a part of this text of the file, by its form."""
    return any(not is_example for _, _, is_example in _forms(file, text))


def holds_example(file: File, text: str) -> bool:
    """Whether a part of a text has the form of a secret, and is none."""
    return any(is_example for _, _, is_example in _forms(file, text))


def _is_example(file: File, secret: str) -> bool:
    """In a spec of ours a reference takes the place of any value: only what documentations print is none there."""
    if file.format == "spec":
        return _is_printed_example(secret)
    if "\n" in secret or "\\n" in secret:
        return re.search(r"([xX*.])\1{7}", secret) is not None
    return is_made_up(secret)


def _is_printed_example(secret: str) -> bool:
    """`hf_xxxx` and the keys of AWS's documentation, which end in EXAMPLE."""
    return secret.endswith("EXAMPLE") or set(secret.split("_", 1)[-1].lower()) <= set("x*")


def _has_secret_key(text: str) -> bool:
    return any(not is_made_up(match[1]) for match in _SECRET_KEY.finditer(text))


def _is_written_out(file: File, env: EnvVar) -> bool:
    if not env.value.known or _is_example(file, env.value.value):
        return False
    if file.format == "spec":
        from trainwright.spec.words import SECRET_NAME  # with pydantic, which a foreign file is checked without

        if SECRET_NAME.match(env.name):
            return _WRITTEN_OUT.fullmatch(env.value.value) is not None
    return is_secret(env)


def is_secret(env: EnvVar) -> bool:
    """Whether the value of a variable for a token looks like one: this rule then reports it, in any kind of file."""
    written = env.value.known and not is_made_up(env.value.value)
    return written and _TOKEN_NAME.match(env.name) is not None and bool(_LOOKS_SECRET.fullmatch(env.value.value))


def _in_flags(file: File) -> Iterator[Problem]:
    """Secrets among the words of a command line of ours (`--set`, or after `--`), which stand in no file yet."""
    lists = {id(job.commands): job.commands for job in file.jobs}.values()  # the jobs of a script share its commands
    words = [word for commands in lists for command in commands for word in command.words]
    yield from _in_options(file, words)
    for value in (*words, *(env.value for env in file.all_env)):
        for match, what, is_example in _forms(file, value.value) if value.span.source else ():
            if not is_example:
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
        if option == name or not SECRET_NAME.match(name) or _is_example(file, secret):
            continue
        pattern = _LOOKS_SECRET if name.lower().endswith("token") else _WRITTEN_OUT
        if pattern.fullmatch(secret) and not any(known_form.search(secret) for known_form, _ in _secrets()):
            yield problem(
                Value("", replace(word.span, source=word.span.source.replace(secret, "…"))),
                f"the value of {option} is among the arguments",
                "refer to it in the job: `env: {NAME: {secret: {env: NAME}}}`",
            )


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
