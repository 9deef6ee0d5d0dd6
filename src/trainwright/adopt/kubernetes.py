"""A PyTorchJob, MPIJob, JobSet, TrainJob or Job -> a spec with one job on an existing Kubernetes cluster."""

from __future__ import annotations

import itertools
import re
from itertools import pairwise
from typing import Any

from trainwright.adopt.launch import Launched, taken_apart
from trainwright.adopt.result import Adoption
from trainwright.adopt.shell import assignment, command_words, in_shell, needed
from trainwright.adopt.tables import PROVIDED, is_secret, table
from trainwright.catalog.instances import find_instance
from trainwright.check.model import Container, File, Job, Value
from trainwright.check.readers.kubernetes import EFA, NEURON
from trainwright.errors import UserError
from trainwright.spec.source import Node
from trainwright.spec.units import format_seconds

KINDS = {"PyTorchJob": "pytorchjob", "MPIJob": "mpijob", "JobSet": "jobset", "TrainJob": "trainjob"}
_PLACEHOLDER = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
KUEUE = "kueue.x-k8s.io/queue-name"
# Volumes that every pod has by itself.
_OWN_FOLDERS = ("/dev/shm",)  # the name of a mount, not a file that is written
_POLICY = {
    "elasticPolicy": "ranks meet at the first pod; a job starts again as a whole",
    "runPolicy": "pods of an ended job are kept for their logs; a time limit is carried over",
    "restartPolicy": "set by what the job's operator counts",
}


def adopt_manifest(file: File) -> Adoption:
    """The spec of a manifest, with a note on each part that has a meaning."""
    jobs = [job for job in file.jobs if job.scheduler == "kubernetes"]
    if not jobs:
        raise UserError(
            "the manifest holds no job", where=file.path, fix="name a PyTorchJob, MPIJob, JobSet or TrainJob"
        )
    job = max(jobs, key=lambda one: (one.launch is not None, bool(one.gpus_per_node), len(one.commands)))
    return _Manifest(file, job).adopted()


class _Manifest:
    def __init__(self, file: File, job: Job) -> None:
        self.file, self.source = file, job
        self.result = Adoption(file.path)
        self.root = [root for root in file.nodes if root.span.line <= job.span.line][-1]
        self.kind = _text(self.root, "kind")
        self.launched = taken_apart(job.launch) if job.launch is not None else self._plain()

    def _plain(self) -> Launched:
        """A container that starts no known launcher: its words as they are."""
        commands = [command for command in self.source.commands if command.words]
        return Launched("plain", list(commands[0].words) if commands else [])

    def adopted(self) -> Adoption:
        result = self.result
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", self.source.label).strip("-._") if self.source.name else "job"
        result.spec |= {"name": name or "job", "platform": "kubernetes", "queues": [{"name": "default"}]}
        result.spec["jobs"] = [{"name": name or "job"}]
        self._size()
        self._container()
        self._volumes()
        self._settings()
        self._environment()
        self._command()
        self._placeholders()
        return result

    def _size(self) -> None:
        result, source = self.result, self.source
        nodes = self._count("nodes", source.nodes, 1)
        gpus = self._count("gpus", source.gpus_per_node[0] if source.gpus_per_node else None, 0)
        stated = self.launched.processes if self.launched.launcher == "torchrun" else None
        each = _whole(stated) or (source.processes_per_node if self.launched.launcher == "torchrun" else None)
        if self.kind == "MPIJob":
            each = source.processes_per_node
        processes = self._count("processes", each, gpus or 1) if self.launched.launcher == "torchrun" else 1
        if self.kind == "MPIJob":
            processes = self._count("processes", each, gpus or 1)
        result.job.update(nodes=nodes, processes=processes)
        result.queue["nodes"] = nodes
        instance = source.instance.value.removeprefix("ml.") if source.instance is not None else ""
        if instance and find_instance(instance) is not None:
            result.queue["instance"] = instance
            result.carry(f"node selector {instance}", source.instance, f"queue: instance: {instance}")
            result.queue["count"] = result.queue.pop("nodes")
            return
        if gpus:
            result.queue["gpus"] = gpus
        cpus = source.cpus_per_task
        result.queue["cpus"] = cpus.value if cpus is not None and cpus.known and cpus.value else processes
        if EFA in self._resources() or source.efa_per_node:
            result.drop(EFA, source.span, "network cards come with the instance type: write `instance:` in the queue")
        if NEURON in self._resources():
            result.drop(NEURON, source.span, "Neuron devices come with the instance type: write `instance:`")

    def _count(self, field: str, value: Value[int] | None, otherwise: int) -> int:
        if value is not None and value.known and value.value >= 0:
            self.result.carry(f"{field} {value.value}", value, f"{field}: {value.value}")
            return value.value or otherwise
        written = f" (the file says {value.text})" if value is not None and value.text else ""
        if value is not None or field != "gpus":
            self.result.assume(f"{field}: {otherwise}", value, f"the file does not say it{written}")
        return otherwise

    def _resources(self) -> set[str]:
        return {name for each in self._containers() for name in (*each.limits, *each.requests)}

    def _containers(self) -> list[Container]:
        return self.source.pod.containers if self.source.pod is not None else []

    def _container(self) -> None:
        image = self.source.image
        if image is not None:
            self.result.job["container"] = image.value
            self.result.carry(f"image {image.value}", image, "container")
        if self.kind in KINDS:
            self.result.job["kind"] = KINDS[self.kind]
            self.result.carry(f"kind {self.kind}", self.root.span, f"kind: {KINDS[self.kind]}")
        else:
            self.result.assume(
                "kind: pytorchjob", self.root.span, f"a {self.kind} has no counterpart: it is started as this"
            )

    def _volumes(self) -> None:
        """Claims become the cluster's file systems, folders of the node become mounts."""
        pod = self.source.pod
        sources = {volume.name.value: volume for volume in pod.volumes} if pod is not None else {}
        claims: dict[str, str] = {}
        for container in self._containers()[:1]:
            for path, name in container.mounts:
                volume = sources.get(name)
                kind = volume.kind if volume is not None else ""
                if path.value in _OWN_FOLDERS:
                    self.result.drop(f"volume {path.value}", path, "every pod has shared memory by itself")
                elif kind == "persistentVolumeClaim":
                    claims[path.value] = self._claim(name) or path.value.strip("/").replace("/", "-")
                    self.result.carry(f"claim {claims[path.value]}", path, f"storage {path.value}")
                elif kind == "hostPath":
                    host = self._host_path(name)
                    mount = host if host == path.value else f"{host}:{path.value}"
                    self.result.job.setdefault("mounts", []).append(mount)
                    self.result.carry(f"hostPath {host}", path, f"mounts: {mount}")
                else:
                    self.result.drop(f"volume {path.value} ({kind or 'unknown'})", path, "a spec has no field for it")
        if claims:
            self.result.spec["storage"] = [{"mount": path, "folder": path} for path in claims]
            self.result.spec["kubernetes"] = {"claims": claims}
        else:
            self.result.spec["runs"] = "/fsx/trainwright/runs"
            self.result.assume("runs: /fsx/trainwright/runs", None, "no claim is mounted, and run folders need one")

    def _first(self, key: str) -> str:
        """The first value of that key anywhere in the object."""
        return next((text for node in _walk(self.root) if node.is_map and (text := _text(node, key))), "")

    def _volume_node(self, name: str) -> Node | None:
        for node in _walk(self.root):
            volumes = node.get("volumes") if node.is_map else None
            for volume in volumes.elements() if volumes is not None and volumes.is_list else ():
                if volume.is_map and _text(volume, "name") == name:
                    return volume
        return None

    def _claim(self, name: str) -> str:
        node = self._volume_node(name)
        return _text(node, "persistentVolumeClaim", "claimName") if node is not None else ""

    def _host_path(self, name: str) -> str:
        node = self._volume_node(name)
        return _text(node, "hostPath", "path") if node is not None else ""

    def _settings(self) -> None:
        kubernetes: dict[str, Any] = self.result.spec.setdefault("kubernetes", {})
        namespace = _text(self.root, "metadata", "namespace")
        if namespace:
            kubernetes["namespace"] = namespace
            self.result.carry(f"namespace {namespace}", self.root.span, "kubernetes: namespace")
        account = self._first("serviceAccountName")
        if account:
            kubernetes["service_account"] = account
        if not kubernetes:
            del self.result.spec["kubernetes"]
        deadline = self._first("activeDeadlineSeconds")
        if deadline.isdecimal() and int(deadline):
            self.result.job["time"] = format_seconds(int(deadline))
            self.result.carry(f"activeDeadlineSeconds {deadline}", self.root.span, "time")
        for key, why in _POLICY.items():
            node = next((n for n in _walk(self.root) if n.is_map and n.get(key) is not None), None)
            if node is not None:
                self.result.drop(key, node.key_span(key), why)
        self._queue_label(kubernetes)
        self._tolerations()
        self._other_objects()

    def _queue_label(self, kubernetes: dict[str, Any]) -> None:
        queue = next((n.get(KUEUE) for n in _walk(self.root) if n.is_map and n.get(KUEUE) is not None), None)
        if queue is not None and queue.text:
            self.result.spec.setdefault("kubernetes", kubernetes)["kueue"] = queue.text
            self.result.carry(f"{KUEUE} {queue.text}", queue.span, "kubernetes: kueue")

    def _tolerations(self) -> None:
        """Pods with GPUs tolerate the taint of GPU nodes by themselves, and no other."""
        listed = [n.get("tolerations") for n in _walk(self.root) if n.is_map and n.get("tolerations") is not None]
        for toleration in (item for node in listed if node is not None and node.is_list for item in node.elements()):
            key = _text(toleration, "key")
            if key and key != "nvidia.com/gpu":
                self.result.drop(f"toleration {key}", toleration.span, "a spec has no field for it")

    def _other_objects(self) -> None:
        """A Service and a Deployment of etcd beside the job: its ranks meet without them."""
        for root in self.file.nodes:
            if root is not self.root and _text(root, "kind"):
                name = f"{_text(root, 'kind')} {_text(root, 'metadata', 'name')}"
                why = "ranks meet at the first pod" if "etcd" in name else "it is no job: apply it by hand"
                self.result.drop(name, root.span, why)

    def _environment(self) -> None:
        env: dict[str, Any] = {}
        self.late: list[str] = []
        script = self.source.script
        for entry in [*self.source.env, *(script.env if script is not None else [])]:
            if entry.name in PROVIDED:
                self.result.drop(f"env {entry.name}", entry.span, "the job script sets it for each rank")
            elif is_secret(entry.name):
                env[entry.name] = {"secret": {"env": entry.name}}
                why = "the value is not copied: export it in the shell that submits, or name a Secret in `secrets:`"
                self.result.assume(f"env {entry.name}", entry.span, why)
            elif script is not None and entry in script.env and not entry.value.known:
                self.late.append(assignment(entry, export=True))
            else:
                env[entry.name] = entry.value.value
                self.result.carry(f"env {entry.name}", entry.span, f"env: {entry.name}")
        env |= self._by_mpirun()
        if env:
            self.result.job["env"] = env
        secrets = self._secrets()
        if secrets:
            self.result.job["secrets"] = secrets

    def _by_mpirun(self) -> dict[str, str]:
        """`mpirun -x NAME=VALUE`."""
        words = self.source.launch.runner.words if self.source.launch and self.source.launch.runner else []
        texts = [word.value for word in words]
        given = [after for flag, after in pairwise(texts) if flag == "-x" and "=" in after]
        return dict(text.split("=", 1) for text in given)

    def _secrets(self) -> dict[str, str]:
        """Variables that the manifest takes from a Secret, by reference."""
        made = {}
        for node in _walk(self.root):
            name, key = (
                _text(node, "valueFrom", "secretKeyRef", part) if node.is_map else "" for part in ("name", "key")
            )
            if name and key:
                made[_text(node, "name")] = f"{name}/{key}"
                self.result.carry(f"env {_text(node, 'name')}", node.span, f"secrets: {name}/{key}")
        return made

    def _command(self) -> None:
        launched, result = self.launched, self.result
        for name, word in [*launched.replaced, *launched.lost]:
            result.drop(f"{name} {word.value}".strip(), word, "the job script sets the rendezvous")
        words = launched.words
        if self.source.script is None:  # no shell runs them: a placeholder is for envsubst, and is named below
            words = [Value(word.value, word.span, word.text) if not _own(word) else word for word in words]
        texts = [word.value for word in words if not word.known]
        values = [e for e in needed(self.source.script, texts) if e.name not in PROVIDED]
        prelude = [*self._preparations(), *(assignment(entry) for entry in values), *self.late]
        if not words:
            result.assume("no command", self.source.span, "the image's own entry point runs: write what each rank runs")
            return
        result.job["command"] = command_words(words, prelude)
        result.job["launcher"] = "srun" if self.kind == "MPIJob" and launched.launcher == "plain" else launched.launcher
        at = self.source.launch.span if self.source.launch is not None else self.source.span
        result.carry(" ".join(word.value for word in words[:4]), at, f"command, launcher: {result.job['launcher']}")

    def _preparations(self) -> list[str]:
        """Lines of the container's script before the launch: those that prepare the shell run on each rank too."""
        launch = self.source.launch
        if self.source.script is None or launch is None:
            return []
        commands = table()["commands"]
        lines = []
        for command in itertools.takewhile(lambda one: one is not launch, self.source.commands):
            text = " ".join([command.program, *(in_shell(word) for word in command.words[1:])])
            if command.program in commands["prepare"] and not command.conditional:
                lines.append(text)
                self.result.carry(text, command.span, "in the command: it prepares the shell of each rank")
            elif command.program not in commands["silent"]:
                why = "it runs once per pod before the ranks: put it into the image, or into the command"
                self.result.drop(command.program if "token" in text.lower() else text, command.span, why)
        return lines

    def _placeholders(self) -> None:
        """Names that envsubst would have filled in."""
        names = sorted(
            {name.strip("${}") for text in _strings(self.result.spec) for name in _PLACEHOLDER.findall(text)}
        )
        for name in names:
            if name not in PROVIDED and not name.startswith("SLURM_"):
                self.result.assume(f"${{{name}}}", None, f"the file is a template: give the value, --set {name}=...")


def _own(word: Value[str]) -> bool:
    return any(f"${name}" in word.value for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"))


def _whole(value: Value[str] | None) -> Value[int] | None:
    if value is None:
        return None
    good = value.known and value.value.isdecimal()
    return value.meaning(int(value.value) if good else 0, known=good)


def _text(node: Node | None, *path: str) -> str:
    value = node.get(*path) if node is not None else None
    return value.text if value is not None and value.is_scalar else ""


def _walk(root: Node) -> list[Node]:
    return list(root.walk())


def _strings(data: Any) -> list[str]:
    if isinstance(data, dict):
        return [text for value in data.values() for text in _strings(value)]
    if isinstance(data, list | tuple):
        return [text for value in data for text in _strings(value)]
    return [data] if isinstance(data, str) else []
