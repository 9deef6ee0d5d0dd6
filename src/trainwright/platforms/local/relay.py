"""A proxy through which Prometheus, on this machine's network, scrapes exporters on the network of a local cluster. Its
listening socket belongs to the machine; the process itself lives in the head's network, so what it opens goes there."""

from __future__ import annotations

import http.client
import ipaddress
import socket
import sys
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NETWORK = ipaddress.ip_network("127.77.0.0/16")  # of the nodes, and nothing else
SECONDS = 10.0


class Relay(BaseHTTPRequestHandler):
    timeout = SECONDS

    def do_GET(self) -> None:
        wanted = urllib.parse.urlsplit(self.path)
        if wanted.scheme != "http" or not _is_node(wanted.hostname or ""):
            self.send_error(403, "only nodes of the cluster")
            return
        connection = http.client.HTTPConnection(wanted.hostname or "", wanted.port or 80, timeout=SECONDS)
        try:
            connection.request("GET", wanted.path, headers={"Accept": self.headers.get("Accept", "*/*")})
            answer = connection.getresponse()
            body = answer.read()
        except OSError as error:
            self.send_error(502, str(error))
            return
        finally:
            connection.close()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type", "text/plain"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""


def _is_node(host: str) -> bool:
    try:
        return ipaddress.ip_address(host) in NETWORK
    except ValueError:
        return False


def main(descriptor: int) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Relay, bind_and_activate=False)
    server.socket.close()
    server.socket = socket.socket(fileno=descriptor)
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
