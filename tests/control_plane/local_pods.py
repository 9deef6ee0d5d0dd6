"""What a node does, on this machine: pods of the API server that are bound to it run as local processes, with their
variables, volumes and init containers, their phases are reported, and the API server reads their logs from here as it
reads them from a kubelet. A pod sees this machine's own file system; of a mount, the path in its words is replaced."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

from api_server import ControlPlane

import trainwright

NODE = "node-1"
Data = dict[str, Any]


class Node:
    """One node of the cluster; `see` is told about every pod that was added, changed or deleted."""

    def __init__(self, plane: ControlPlane, folder: Path, claims: dict[str, Path] | None = None) -> None:
        self.plane, self.folder = plane, folder
        self.claims = claims or {}  # claim -> folder here
        self.pods: dict[str, LocalPod] = {}
        self.may_delete = threading.Event()  # cleared: pods that are being deleted stay as long
        self.may_delete.set()
        folder.mkdir(parents=True)
        self.logs = _log_server(self, folder)
        address = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
        ports = {"daemonEndpoints": {"kubeletEndpoint": {"Port": self.logs.server_port}}}
        meta = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        plane.request("DELETE", f"/api/v1/nodes/{NODE}")
        assert plane.request("POST", "/api/v1/nodes", json.dumps({**meta, "status": address | ports}))[0] == 201

    def see(self, pod: Data) -> None:
        key = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp"):
            if key in self.pods:
                self.pods[key].end()
            return
        if key not in self.pods:
            self.pods[key] = LocalPod(self, pod)

    def stop(self) -> None:
        self.may_delete.set()
        for pod in self.pods.values():
            pod.kill()
        self.logs.shutdown()
        self.logs.server_close()


class LocalPod:
    """One pod: its processes in a thread of their own."""

    def __init__(self, node: Node, pod: Data) -> None:
        self.node, self.pod = node, pod
        self.name, self.namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.folder = node.folder / pod["metadata"]["uid"]
        self.lines: list[tuple[datetime, str]] = []
        self.process: subprocess.Popen[str] | None = None
        self.restarts, self.ending, self.killed = 0, False, False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def end(self) -> None:
        """As the kubelet ends a pod that is being deleted: a signal, time to save, then it is gone."""
        if self.ending:
            return
        self.ending = True
        self._signal(signal.SIGTERM)
        threading.Thread(target=self._finish, daemon=True).start()

    def _finish(self) -> None:
        self.thread.join(self.pod["spec"].get("terminationGracePeriodSeconds", 30))
        self.kill()
        self.node.may_delete.wait()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod["metadata"]["uid"]}}
        self.node.plane.request("DELETE", self.path, json.dumps(body))

    def kill(self) -> None:
        self.ending = self.killed = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def _run(self) -> None:
        self._report(*self._ran())

    def _ran(self) -> tuple[str, int]:
        """Phase and exit status of the pod at its end."""
        spec = self.pod["spec"]
        mounts = self._volumes(spec)
        for before in spec.get("initContainers", ()):
            if self._execute(before, mounts):
                return "Failed", 1
        [main] = spec["containers"]
        self._report("Running")
        code = self._execute(main, mounts)
        while code and spec.get("restartPolicy") == "OnFailure" and not self.ending:
            self.restarts += 1
            self._report("Running")
            code = self._execute(main, mounts)
        return ("Failed" if code else "Succeeded"), code

    def _execute(self, container: Data, mounts: dict[str, str]) -> int:
        environment = {line["name"]: self._value(line) for line in container.get("env", ())}
        words = [_filled(word, environment) for word in container["command"]]
        local = [(mount["mountPath"], mounts[mount["name"]]) for mount in container.get("volumeMounts", ())]
        local = [(there, here) for there, here in local if here]
        self.process = subprocess.Popen(
            [_moved(word, local) for word in words],
            env=_machine() | {name: _moved(value, local) for name, value in environment.items()},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=self.folder,
        )  # fmt: skip
        if self.killed:
            self._signal(signal.SIGKILL)
        assert self.process.stdout is not None
        with self.process.stdout as output:
            self.lines.extend((datetime.now(UTC), line.rstrip("\n")) for line in output)
        return self.process.wait()

    def _volumes(self, spec: Data) -> dict[str, str]:
        """Volume -> folder here. A claim is the folder that the node says, else the same one on this machine, as is
        /dev/shm."""
        folders: dict[str, str] = {}
        for volume in spec.get("volumes", ()):
            here = self.folder / volume["name"]
            here.mkdir(parents=True, exist_ok=True)
            if "configMap" in volume:
                kept = self._read("configmaps", volume["configMap"]["name"]).get("binaryData", {})
                for name, data in kept.items():
                    (here / name).write_bytes(base64.b64decode(data))
            claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
            same = claim or volume["name"] == "shm"
            folders[volume["name"]] = str(self.node.claims.get(claim, "")) if same else str(here)
        return folders

    def _value(self, line: Data) -> str:
        if "valueFrom" not in line:
            return str(line.get("value", ""))
        reference = line["valueFrom"]["secretKeyRef"]
        return base64.b64decode(self._read("secrets", reference["name"])["data"][reference["key"]]).decode()

    def _read(self, plural: str, name: str) -> Data:
        status, item = self.node.plane.request("GET", f"/api/v1/namespaces/{self.namespace}/{plural}/{name}")
        assert status == 200, item
        return dict(item)

    def _report(self, phase: str, code: int = 0) -> None:
        [main] = self.pod["spec"]["containers"]
        ended = {"terminated": {"exitCode": code}} if phase in ("Failed", "Succeeded") else {"running": {}}
        one = {
            "name": main["name"], "image": main["image"], "imageID": "", "ready": phase == "Running", "state": ended,
            "restartCount": self.restarts,
        }  # fmt: skip
        change = json.dumps({"status": {"phase": phase, "containerStatuses": [one]}})
        self.node.plane.request("PATCH", f"{self.path}/status", change, "application/merge-patch+json")


def _machine() -> dict[str, str]:
    """The image that every pod has here: this Python with torch, and our package."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/"),
        "PYTHONPATH": str(Path(trainwright.__file__).parents[1]), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def _filled(word: str, environment: dict[str, str]) -> str:
    """`$(NAME)` as the kubelet fills it in."""
    return re.sub(r"\$\((\w+)\)", lambda name: environment.get(name[1], name[0]), word)


def _moved(text: str, local: list[tuple[str, str]]) -> str:
    for there, here in local:
        text = text.replace(there, here)
    return text


def _log_server(node: Node, folder: Path) -> ThreadingHTTPServer:
    """What the API server asks a kubelet for: GET /containerLogs/NAMESPACE/POD/CONTAINER, over TLS."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _, _, namespace, pod, _ = urlparse(self.path).path.split("/")
            words = parse_qs(urlparse(self.path).query)
            text = "".join(_logged(node, namespace, pod, words)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=node", "-days", "1"]
    subprocess.run([*make, "-keyout", "key", "-out", "certificate"], cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate", folder / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _logged(node: Node, namespace: str, name: str, words: dict[str, list[str]]) -> Iterator[str]:
    newest = [pod for pod in node.pods.values() if (pod.namespace, pod.name) == (namespace, name)][-1:]
    for pod in newest:
        for moment, line in list(pod.lines):
            age = (datetime.now(UTC) - moment).total_seconds()
            if age <= float(words.get("sinceSeconds", ["1e9"])[0]):
                stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z ") if words.get("timestamps") == ["true"] else ""
                yield f"{stamp}{line}\n"
