"""A small server on loopback that keeps objects as the Kubernetes API does: no control plane can be installed here from
packages, and the real client cannot tell the difference."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOBS = re.compile(r"/apis/[^/]+/[^/]+/namespaces/[^/]+/[a-z]+jobs|/apis/[^/]+/[^/]+/namespaces/[^/]+/jobsets")
PODS = re.compile(r"/api/v1/namespaces/[^/]+/pods")


class Api(ThreadingHTTPServer):
    """Objects by path."""

    objects: dict[str, dict[str, Any]]
    pods: list[dict[str, Any]]
    logs: dict[str, str]  # pod -> lines with their moments, as the API gives them under timestamps=true
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Api

    def _answer(self, body: Any, status: int = 200) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        item = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path = f"{self.path.partition('?')[0]}/{item['metadata']['name']}"
        if path in self.server.objects:
            return self._answer({"reason": "AlreadyExists"}, 409)
        self.server.objects[path] = item
        return self._answer(item, 201)

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        path = self.path.partition("?")[0]
        if JOBS.fullmatch(path):
            inside = [item for name, item in self.server.objects.items() if name.rpartition("/")[0] == path]
            return self._answer({"items": inside})
        if PODS.fullmatch(path):
            return self._answer({"kind": "PodList", "apiVersion": "v1", "items": self.server.pods})
        if path.endswith("/log"):
            lines = self.server.logs.get(path.split("/")[-2])  # none: the pod was deleted since it was listed
            return self._answer({"reason": "NotFound"}, 404) if lines is None else self._answer(lines)
        found = self.server.objects.get(path)
        return self._answer(found, 200) if found else self._answer({"reason": "NotFound"}, 404)

    def do_PATCH(self) -> None:
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        item = self.server.objects[self.path.partition("?")[0]]
        item["metadata"] |= change["metadata"]
        return self._answer(item)

    def do_DELETE(self) -> None:
        path = self.path.partition("?")[0]
        found = self.server.objects.pop(path, None)
        return self._answer({"status": "Success"} if found else {"reason": "NotFound"}, 200 if found else 404)

    def log_message(self, *words: Any) -> None:
        return None
