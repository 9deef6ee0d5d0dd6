"""A real Kubernetes API server on loopback: etcd, kube-apiserver, and the garbage collector of kube-controller-manager,
as tools/build_kubernetes.sh builds them. There is no scheduler and no kubelet; `local_pods.py` stands in for them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TOKEN = "only-on-loopback"
STARTS = 3  # a free port may be taken by another program before its own program binds it


class ApiServerMissing(Exception):
    """There is no API server on this machine, and none can be built."""


def programs() -> Path:
    """The folder of the built programs; builds them where they are missing, or waits for another build."""
    done = subprocess.run([ROOT / "tools/build_kubernetes.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ApiServerMissing(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the build failed")
    return Path(done.stdout.strip())


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


class ControlPlane:
    """The processes of one control plane, and a kubeconfig for it."""

    def __init__(self, folder: Path, built: Path, authenticator: str = "") -> None:
        """`authenticator`: address of the service that knows the users behind tokens, beside the one of the tests."""
        self.folder, self.built, self.authenticator = folder, built, authenticator
        self.kubeconfig = folder / "kubeconfig"
        self.processes: list[subprocess.Popen[bytes]] = []
        for attempt in range(STARTS):
            try:
                self._start(attempt)
                break
            except ChildProcessError:
                self.stop()
                if attempt == STARTS - 1:
                    raise

    def _start(self, attempt: int) -> None:
        etcd, peer, api = free_ports(3)
        data = self.folder / f"start-{attempt}"
        data.mkdir(mode=0o700)
        at, between = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        self._run(
            "etcd", "--data-dir", data / "etcd", "--listen-client-urls", at, "--advertise-client-urls", at,
            "--listen-peer-urls", between, "--initial-advertise-peer-urls", between,
            "--initial-cluster", f"default={between}",
        )  # fmt: skip
        (data / "tokens").write_text(f'{TOKEN},tester,1,"system:masters"\n')
        key = data / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self._run(
            "kube-apiserver", f"--etcd-servers={at}", "--bind-address=127.0.0.1", f"--secure-port={api}",
            "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none", f"--cert-dir={data / 'certificates'}",
            f"--token-auth-file={data / 'tokens'}", "--authorization-mode=AlwaysAllow", "--allow-privileged",
            "--disable-admission-plugins=ServiceAccount", "--service-account-issuer=https://127.0.0.1",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            *self._asks_about_tokens(data / "authenticator"),
        )  # fmt: skip
        self._write_kubeconfig(api, data / "certificates/apiserver.crt")
        self._wait()
        # Of its thirty controllers only the one that deletes what a deleted object owns.
        self._run(
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--controllers=garbagecollector",
            "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0", "--port=0",
        )  # fmt: skip

    def _asks_about_tokens(self, path: Path) -> list[str]:
        if not self.authenticator:
            return []
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {"server": self.authenticator}}],
            "users": [{"name": "u"}], "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        path.write_text(yaml.safe_dump(config))
        return [f"--authentication-token-webhook-config-file={path}", "--authentication-token-webhook-version=v1"]

    def _run(self, program: str, *words: str | Path) -> None:
        log = (self.folder / f"{program}.log").open("ab")
        # Also where pytest is killed, nothing is left behind.
        command = ["setpriv", "--pdeathsig", "KILL", str(self.built / program), *map(str, words)]
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder))
        log.close()

    def _write_kubeconfig(self, port: int, certificate: Path) -> None:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "c", "cluster": {
                "server": f"https://127.0.0.1:{port}", "certificate-authority": str(certificate),
            }}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.server, self.certificate = f"https://127.0.0.1:{port}", certificate

    def _wait(self) -> None:
        """Until the API server says that it is ready; it has no other way to tell."""
        import urllib3

        end = time.monotonic() + 120
        while time.monotonic() < end:
            if any(process.poll() is not None for process in self.processes):
                raise ChildProcessError(self._last_words())
            try:
                if self.certificate.exists() and self.request("GET", "/readyz")[0] == 200:
                    return
            except urllib3.exceptions.HTTPError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"the API server is not ready: {self._last_words()}")

    def _last_words(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.log"))

    def request(self, method: str, path: str, body: str = "", content: str = "application/json") -> tuple[int, Any]:
        """One request without the client library: status and answer."""
        import json

        import urllib3

        with urllib3.PoolManager(ca_certs=str(self.certificate), retries=False) as pool:
            answer = pool.request(
                method, f"{self.server}{path}", body=body.encode() or None, timeout=20,
                headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": content},
            )  # fmt: skip
        text = answer.data.decode()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.kill()  # nothing of it is kept
            process.wait()
        self.processes.clear()

    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
