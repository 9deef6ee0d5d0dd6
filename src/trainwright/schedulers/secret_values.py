"""Values of secrets on their way to a scheduler. They are read here at the last moment, kept in no file of the run, and
never on a command line, which other users of a machine can see."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwright.errors import UserError
from trainwright.schedulers.base import Launch, SecretEnv
from trainwright.schedulers.shell import Done, Shell

# Reads one encoded value per line of its input and exports it, then becomes the command.
RECEIVE = """\
for name in $1; do IFS= read -r line; export "$name=$(printf %s "$line" | base64 -d)"; done
shift; exec "$@"
"""


def from_shell(launch: Launch) -> dict[str, str]:
    """The values that come from variables of this shell."""
    return {secret.name: _of_variable(launch, secret) for secret in launch.secret_env if secret.env}


def all_values(launch: Launch) -> dict[str, str]:
    """Every value, those of files too: for a cluster whose nodes do not see this machine's files."""
    files = {secret.name: _of_file(launch, secret) for secret in launch.secret_env if secret.file}
    return {**from_shell(launch), **files}


def run_with(shell: Shell, command: Sequence[str], values: Mapping[str, str]) -> Done:
    """Run a command with further variables in its environment, also over ssh."""
    if not values:
        return shell.run(command)
    lines = "".join(base64.b64encode(value.encode()).decode() + "\n" for value in values.values())
    return shell.run(["sh", "-c", RECEIVE, "sh", " ".join(values), *command], lines)


def _of_variable(launch: Launch, secret: SecretEnv) -> str:
    value = os.environ.get(secret.env)
    if not value:
        raise UserError(
            f"{secret.env} is not set in this shell, and job {launch.name!r} takes {secret.name} from it",
            where=f"job {launch.name}: env: {secret.name}",
            fix=f"export {secret.env}, or name a file that only you may read: secret: {{file: …}}",
        )
    return value


def _of_file(launch: Launch, secret: SecretEnv) -> str:
    try:
        return Path(secret.file).expanduser().read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"cannot read the secret of {secret.name}: {getattr(error, 'strerror', None) or 'it is not text'}",
            where=secret.file, fix="name a file of this machine that you may read",
        ) from None  # fmt: skip
