"""A real API server that knows its users as EKS does: a token is a signed call of STS, which an authenticator makes to
learn who is asking. Pods run as processes of this machine."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from api_server import ControlPlane, programs
from definitions import install
from local_pods import Node
from operators import JOBS, Operators

PREFIX = "k8s-aws-v1."


@contextlib.contextmanager
def eks_api(folder: Path, cluster: str, namespace: str = "default") -> Iterator[ControlPlane]:
    """The API server of a cluster with one node; the claim `fsx` is a folder of this machine."""
    folder.mkdir()
    (folder / "fsx").mkdir()
    with _authenticator(cluster) as address:
        plane = ControlPlane(folder, programs(), authenticator=address)
        try:
            install(plane, tuple(JOBS))
            node = Node(plane, folder / "node", claims={"fsx": folder / "fsx"})
            operators = Operators(plane, node, namespace)
            try:
                yield plane
            finally:
                operators.stop()
                node.stop()
        finally:
            plane.stop()


@contextlib.contextmanager
def _authenticator(cluster: str) -> Iterator[str]:
    """What the API server asks about a token (TokenReview)."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status = _caller(asked["spec"]["token"], cluster)
            text = json.dumps({"apiVersion": asked["apiVersion"], "kind": "TokenReview", "status": status}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *words: Any) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _caller(token: str, cluster: str) -> dict[str, Any]:
    if not token.startswith(PREFIX):
        return {"authenticated": False}
    text = token.removeprefix(PREFIX)
    address = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    scope = urllib.parse.parse_qs(urllib.parse.urlsplit(address).query)["X-Amz-Credential"][0]
    # The stand-in of AWS has one address for all services, and tells them apart by this header.
    service = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=none"}
    request = urllib.request.Request(address, headers={"x-k8s-aws-id": cluster, **service})
    with urllib.request.urlopen(request, timeout=30) as answer:
        known = b"GetCallerIdentityResult" in answer.read()
    return {"authenticated": known, "user": {"username": "person", "groups": ["system:masters"]}}
