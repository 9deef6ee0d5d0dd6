"""The Python environment of a cluster's jobs as a plan ships it: the files that go to the bucket, and what the boot
script needs to know of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainwright.catalog.runtime import RuntimePins, runtime_pins
from trainwright.jobs.run_folder import plan_runs
from trainwright.jobs.runtime import managed_runtime, shared_root
from trainwright.node_side import node_archive, node_files
from trainwright.platforms.setting import Setting

WAIT = 2700  # seconds that a job waits for the runtime: fetching 3 GB takes minutes, and a slow mirror is tried again


@dataclass(frozen=True, slots=True)
class Shipment:
    """What deploy.sh uploads for the runtime, and where the head node puts it."""

    pins: RuntimePins
    root: str  # the folder of ours on shared storage
    runtime: str
    code: str  # the folder of our node side
    bucket_folder: str
    run_folders: tuple[str, ...]  # of the plan's own job scripts
    texts: Mapping[str, str]  # file of the plan -> its text
    archives: Mapping[str, bytes]  # file of the plan -> its bytes

    @property
    def contents(self) -> dict[str, bytes]:
        return {**{name: text.encode() for name, text in self.texts.items()}, **self.archives}

    @property
    def keys(self) -> dict[str, str]:
        """File of the plan -> its place in the bucket; a changed file gets another one."""
        return {name: f"{self.bucket_folder}/{self._key(name)}" for name in self.contents}

    def values(self) -> dict[str, Any]:
        """What the boot script is filled in with."""
        place = {name: f"{self.runtime}/{name.rpartition('/')[2]}" for name in self.texts}
        place |= dict.fromkeys(self.archives, f"{self.code}.zip")
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in self.contents.items()}
        return {
            "pins": self.pins,
            "root": self.root,
            "runtime": self.runtime,
            "code": self.code,
            "archive": f"{self.code}.zip",
            "run_folders": self.run_folders,
            "wait": WAIT,
            "files": [(self._key(name), digests[name], place[name]) for name in self.contents],
        }

    def _key(self, name: str) -> str:
        return f"{hashlib.sha256(self.contents[name]).hexdigest()[:16]}/{name.rpartition('/')[2]}"


def code_folder(root: str) -> str:
    """Where the node side of this version stands on the cluster; named by its content."""
    content = hashlib.sha256()
    for name, data in node_files().items():
        content.update(f"{name} {hashlib.sha256(data).hexdigest()}\n".encode())
    return f"{root}/code/{content.hexdigest()[:12]}"


def shipment(setting: Setting) -> Shipment:
    spec, pins = setting.spec, runtime_pins()
    root = shared_root(spec)
    return Shipment(
        pins=pins,
        root=root,
        runtime=managed_runtime(spec),
        code=code_folder(root),
        bucket_folder=f"trainwright/{spec.name}",
        run_folders=tuple(f"{plan_runs(spec)}/{job.name}" for job in spec.jobs),
        texts={"runtime/requirements.txt": pins.requirements, "runtime/uv.txt": pins.uv_requirements},
        archives={"runtime/trainwright.zip": node_archive()},
    )
