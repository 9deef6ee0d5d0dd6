"""Boot scripts of ours: container runtimes and monitoring, written as pinned files of the plan. Nodes fetch them from
the bucket under a name that holds their hash, so that a node runs exactly what was planned."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainwright.platforms.annotated import Why
from trainwright.platforms.parallelcluster.monitoring import monitoring_values
from trainwright.platforms.setting import Setting
from trainwright.shell_templates import shell_environment
from trainwright.spec.model import Script

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class BootScript:
    """A script the plan writes and a node runs once, when it is configured."""

    name: str
    text: str
    why: str

    def key(self, cluster: str) -> str:
        """Its address in the bucket; a changed script gets another one."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()[:16]
        return f"trainwright/{cluster}/{digest}/{self.name}"


@cache
def pins() -> dict[str, Any]:
    """Versions of what the scripts install."""
    return tomllib.loads((HERE / "data" / "pins.toml").read_text(encoding="utf-8"))


def boot_scripts(setting: Setting) -> tuple[BootScript, ...]:
    """The scripts every node of the cluster runs."""
    spec = setting.spec
    scripts: list[BootScript] = []
    scratch = next((s.mount for s in spec.storage if s.nvme is not None), None)
    runtimes = (spec.software.containers or "none").split("+")
    if "enroot" in runtimes:
        text = render("enroot.sh.j2", scratch=scratch, os=spec.software.os)
        scripts.append(BootScript("enroot.sh", text, "ParallelCluster ships enroot and pyxis switched off"))
    if "docker" in runtimes:
        text = render("docker.sh.j2", scratch=scratch, os=spec.software.os, pins=pins()["docker"])
        scripts.append(BootScript("docker.sh", text, "the stock image has no docker"))
    if spec.monitoring:
        text = render("monitoring.sh.j2", **monitoring_values(spec, pins()["monitoring"]))
        scripts.append(BootScript("monitoring.sh", text, "node metrics, gathered by a Prometheus on the head node"))
    return tuple(scripts)


def actions(
    scripts: tuple[BootScript, ...], own: tuple[Script, ...], cluster: str, bucket: str | None
) -> dict[str, Any]:
    """The CustomActions of a node: our scripts first, then the user's, in order. Empty without any."""
    steps: list[Any] = [
        Why({"Script": f"s3://{bucket}/{s.key(cluster)}"}, f"{s.why} (scripts/{s.name} of this plan)") for s in scripts
    ]
    steps += [{"Script": s.source, **({"Args": list(s.args)} if s.args else {})} for s in own]
    return {"OnNodeConfigured": {"Sequence": steps}} if steps else {}


def render(name: str, **values: Any) -> str:
    """One script of this folder, filled in; every value is quoted for the shell."""
    engine = shell_environment(HERE / "scripts", trim_blocks=True, lstrip_blocks=True)
    return engine.get_template(name).render(**values)
