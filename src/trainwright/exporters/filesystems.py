"""Space of the mounted file systems. A dead network mount never answers: each mount is asked in a thread of its own,
and one that does not answer is reported as such and not asked again until it does."""

from __future__ import annotations

import os
import threading

from trainwright.exporters.files import Tree
from trainwright.exporters.metric import MetricSet

KINDS = frozenset({"ext4", "xfs", "btrfs", "zfs", "lustre", "nfs", "nfs4", "tmpfs", "overlay", "virtiofs", "9p"})
KINDS |= {"fuse.mount-s3", "fuse.s3fs"}
IGNORED = ("/run", "/sys", "/proc", "/dev/pts", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/snap")
SECONDS = 2.0
MOST_MOUNTS = 64


class Mount:
    """One mount and its last answer."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.answer: os.statvfs_result | None = None
        self.thread: threading.Thread | None = None

    def ask(self) -> None:
        if self.thread is None or not self.thread.is_alive():
            self.answer = None
            self.thread = threading.Thread(target=self._ask, daemon=True)
            self.thread.start()

    def _ask(self) -> None:
        try:
            self.answer = os.statvfs(self.path)
        except OSError:
            self.answer = None


class FilesystemCollector:
    name = "filesystems"

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.mounts: dict[str, Mount] = {}

    def available(self) -> bool:
        return True

    def collect(self) -> MetricSet:
        listed = self._listed()
        for path in listed:
            self.mounts.setdefault(path, Mount(self.tree.root + path)).ask()
        metrics, waiting = MetricSet(), SECONDS
        for path, kind in listed.items():
            mount = self.mounts[path]
            if mount.thread is not None:
                mount.thread.join(waiting)
                waiting = 0.1 if mount.thread.is_alive() else waiting  # all had the time that the first one took
            self._describe(metrics, mount.answer, {"mount": path, "type": kind})
        return metrics

    def _listed(self) -> dict[str, str]:
        """Mount point -> type, of file systems that hold data."""
        listed: dict[str, str] = {}
        for line in (self.tree.read("/proc/mounts", 1 << 20) or "").splitlines():
            words = line.split()
            if len(words) < 4 or words[2] not in KINDS or words[1].startswith(IGNORED):
                continue
            if words[2] == "tmpfs" and words[1] != "/dev/shm":
                continue
            if len(listed) < MOST_MOUNTS:
                listed[words[1].replace("\\040", " ")] = words[2]
        return listed

    def _describe(self, metrics: MetricSet, answer: os.statvfs_result | None, labels: dict[str, str]) -> None:
        text = "Whether a mounted file system answers."
        metrics.gauge("filesystem_responding", text).add(answer is not None, **labels)
        if answer is None or not answer.f_blocks:
            return
        facts = (
            ("size_bytes", "Size of a file system.", answer.f_blocks * answer.f_frsize),
            ("available_bytes", "Space that ordinary users can still fill.", answer.f_bavail * answer.f_frsize),
            ("files", "Files a file system can hold.", answer.f_files or None),
            ("files_free", "Files that can still be made.", answer.f_ffree if answer.f_files else None),
        )
        for name, text, value in facts:
            metrics.gauge(f"filesystem_{name}", text).add(value, **labels)
