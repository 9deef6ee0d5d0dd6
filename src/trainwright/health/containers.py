"""The versions inside an image: runs the node side in it with the container program that is there, with no network."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import trainwright
from trainwright.errors import UserError
from trainwright.health.node import Node

ENGINES = ("docker", "podman", "nerdctl")
PLACE = "/trainwright-health"  # where the container sees our code
SECONDS = 300.0  # a large image takes its time to be unpacked


def versions_in(image: str, node: Node) -> dict[str, str]:
    """What is installed in an image; our code goes in as a mount, so the image needs only Python."""
    with tempfile.TemporaryDirectory(prefix="trainwright") as folder:
        ship(Path(folder))
        command = launch(image, folder, node)
        done = node.execute(command, SECONDS)
    if not done.ok:
        raise UserError(
            f"the versions in {image} cannot be read: {done.complaint}",
            where=command[0],
            fix="the image must be on this machine and have python3",
        )
    versions: dict[str, str] = json.loads(done.out)
    return versions


def launch(image: str, code: str, node: Node) -> list[str]:
    """The command that runs our probe in the image."""
    probe = ["-m", "trainwright.health", "--versions"]
    if image.endswith(".sqsh"):
        return [
            "enroot",
            "start",
            "--mount",
            f"{code}:{PLACE}",
            "--env",
            f"PYTHONPATH={PLACE}",
            image,
            "python3",
            *probe,
        ]
    engine = next((name for name in ENGINES if node.has(name)), "")
    if not engine:
        raise UserError(f"no container program here to look into {image}", fix=f"install one of {', '.join(ENGINES)}")
    sealed = ["--rm", "--network", "none", "--pull", "never", "--entrypoint", "python3"]
    return [engine, "run", *sealed, "-v", f"{code}:{PLACE}:ro", "-e", f"PYTHONPATH={PLACE}", image, *probe]


def ship(folder: Path) -> None:
    """Only the health checks: the rest of an installation would bring the host's packages along."""
    source = Path(trainwright.__file__).parent
    target = folder / "trainwright"
    target.mkdir()
    for name in ("__init__.py", "errors.py"):
        shutil.copy2(source / name, target)
    shutil.copytree(source / "health", target / "health", ignore=shutil.ignore_patterns("__pycache__"))
