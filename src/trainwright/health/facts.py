"""What `check` may query from the node it runs on (its protocol `NodeFacts`): paths, network interfaces, versions."""

from __future__ import annotations

from trainwright.health.node import Node
from trainwright.health.versions import versions_of

# The catalog's names of software, and ours where they differ. What a job loads goes before what is merely installed.
NAMES = {"cuda": ("cuda_runtime", "cuda_toolkit"), "efa": ("efa_installer",)}


class ThisNode:
    """The node this process runs on, as rules see it."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or Node()

    def path_exists(self, path: str) -> bool:
        return self.node.exists(path)

    def interfaces(self) -> list[str]:
        return [path.rsplit("/", 1)[1] for path in self.node.paths("/sys/class/net/*")]

    def version(self, software: str) -> str | None:
        installed = versions_of(self.node)
        return next((installed[name] for name in NAMES.get(software, (software,)) if name in installed), None)
