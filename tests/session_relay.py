"""A stand-in of the AWS command line's Session Manager: it notes how it was called and carries bytes between ssh and a
port of this machine, as the real one does between ssh and an instance."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPT = """#!{python} -IS
import os, socket, sys, threading
open({calls!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
there = socket.create_connection(("127.0.0.1", {port}))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""


def relay(calls: Path, port: int) -> str:
    """The program's text. It adds its arguments to the file `calls`."""
    return SCRIPT.format(python=sys.executable, calls=str(calls), port=port)
