"""SEC: credentials that stay in an image: files that are copied into it, and build arguments that it keeps."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem
from trainwright.check.rules.img_stages import Instruction, stages

# Files that programs keep their credentials in; a public key ends in .pub.
_CREDENTIALS = re.compile(
    r"(^|/)(\.aws(/credentials|/?$)|id_(rsa|dsa|ecdsa|ed25519)$|\.netrc$|\.git-credentials$|\.docker/config\.json$"
    r"|\.kaggle(/kaggle\.json|/?$)|kaggle\.json$|\.pypirc$|\.?huggingface/token$)"
)
# Keys of a web page (`NEXT_PUBLIC_…`) are for its readers.
_TOKEN = re.compile(
    r"(?!NEXT_PUBLIC_|VITE_|REACT_APP_|EXPO_PUBLIC_|NUXT_PUBLIC_)(?:HF_TOKEN|HUGGING_?FACE\w*TOKEN|\w*API_KEY|NEPTUNE_API_TOKEN|AWS_SECRET_ACCESS_KEY|AWS_SESSION_TOKEN"
    r"|(GIT|GH|GITHUB|GITLAB)_(ACCESS_)?(TOKEN|PAT))$"
)
_SET = re.compile(r"(?<!\w)([A-Za-z_]\w*)[= ]\s*[\"']?\$\{?([A-Za-z_]\w*)")


def kept_credentials(file: File) -> Iterator[Problem]:
    """What the last stage, or one that it starts from, keeps: other stages are not part of the image."""
    if file.format != "dockerfile":
        return
    arguments: set[str] = set()
    kept: list[tuple[Instruction, str]] = []
    for one in list(stages(file.text))[-1].inherited:
        if one.keyword in ("COPY", "ADD"):
            yield from _copied(file, one)
        elif one.keyword == "ARG":
            given = (word.partition("=") for word in one.text.split())
            arguments |= {name for name, _, default in given if _TOKEN.match(name) and not default.strip("\"'")}
        elif one.keyword == "ENV":
            kept += [(one, name) for name in _set(file, one, arguments)]
    if kept:
        names = " and ".join(dict.fromkeys(name for _, name in kept))
        what = f"ENV keeps {names} in the image: `docker inspect` shows what the build was given"
        fix = f"set {names} when the container starts; for a command of the build use RUN --mount=type=secret"
        yield problem(kept[0][0].span, what, fix, why=reasons.IN_THE_IMAGE)


def _copied(file: File, one: Instruction) -> Iterator[Problem]:
    words = [word.strip("\"',") for word in one.text.strip("[] ").split()]
    name = next((word for word in words[:-1] if _CREDENTIALS.search(word)), None)
    if name is not None:
        fix = (
            "mount it for the command that needs it: RUN --mount=type=secret (ssh: --mount=type=ssh) in the build, a "
            "volume or secret where the container runs"
        )
        what = f"{name} stays in the image, with the credentials in it"
        # Beside its public half it is the key with which the containers of one job reach each other.
        level: Level | None = "info" if "authorized_keys" in file.text else None
        yield problem(one.span, what, fix, level=level, why=reasons.IN_THE_IMAGE)


def _set(file: File, one: Instruction, arguments: set[str]) -> Iterator[str]:
    for name, source in _SET.findall(one.text):
        login = re.search(rf"login\b[^\n]{{0,500}}\$\{{?{source}\b", file.text)  # which is reported itself
        if source in arguments and _TOKEN.match(name) and login is None:
            yield name
