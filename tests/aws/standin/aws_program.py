"""The `aws` command line for scripts under test, in the place of AWS's own, which is no Python package: the words of a
script go to the test process, which asks the account of the stand-in by boto3. Options are read by botocore's models,
answers pass `--query` by JMESPath and are printed as `--output text` prints them. `sleep` moves the clock there."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jmespath
from botocore import xform_name
from botocore.exceptions import ClientError, WaiterError

from standin.world import World

# No boto3 in here: a script starts it dozens of times.
CLIENT = """#!{python} -IS
import json, os, sys, urllib.request
asked = json.dumps([os.getcwd(), os.path.basename(sys.argv[0]), *sys.argv[1:]]).encode()
with urllib.request.urlopen("{url}", asked) as answer:
    done = json.load(answer)
sys.stdout.write(done["out"])
sys.stderr.write(done["err"])
sys.exit(done["status"])
"""


class AwsProgram:
    def __init__(self, world: World, account: Any) -> None:
        self.world, self.account = world, account
        self.calls: list[str] = []

    def __call__(self, folder: Path, program: str, words: Sequence[str]) -> dict[str, Any]:
        if program == "sleep":
            self.world.clock.sleep(float(words[0]))
            return {"status": 0, "out": "", "err": ""}
        assert words[:1] + words[2:4] == ["--region", "--output", "text"], words
        service, verb, *rest = words[4:]
        self.calls.append(f"{service} {verb} {' '.join(rest)}")
        try:
            return {"status": 0, "out": self._answer(folder, service, verb, rest), "err": ""}
        except (ClientError, WaiterError) as error:
            return {"status": 254, "out": "", "err": f"\n{error}\n"}

    def _answer(self, folder: Path, service: str, verb: str, rest: list[str]) -> str:
        client = self.account.client(service)
        if (service, verb) == ("cloudformation", "deploy"):
            return self._deploy(client, folder, _options(rest))
        if (service, verb) == ("s3", "cp"):
            bucket, _, key = rest[-1].removeprefix("s3://").partition("/")
            client.put_object(Bucket=bucket, Key=key, Body=(folder / rest[-2]).read_bytes())
            return ""
        if verb == "wait":
            client.get_waiter(rest[0].replace("-", "_")).wait(**_parameters(_options(rest[1:]), None))
            return ""
        options = _options(rest)
        query = options.pop("query", ["@"])[0]
        name = verb.replace("-", "_")
        model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[name])
        given = _parameters(options, model.input_shape)
        if not client.can_paginate(name):
            return _text(jmespath.search(query, getattr(client, name)(**given)))
        pages = client.get_paginator(name).paginate(**given)
        return "".join(_text(jmespath.search(query, page)) for page in pages)  # a page at a time, as aws does for text

    def _deploy(self, client: Any, folder: Path, options: dict[str, list[str]]) -> str:
        [name], [file] = options["stack-name"], options["template-file"]
        [overrides] = options.get("parameter-overrides", [""])
        rows = json.loads((folder / overrides.removeprefix("file://")).read_text()) if overrides else []
        tags = [dict(zip(("Key", "Value"), tag.split("=", 1), strict=True)) for tag in options["tags"]]
        order = {"StackName": name, "TemplateBody": (folder / file).read_text(), "Parameters": rows, "Tags": tags,
                 "Capabilities": options.get("capabilities", [])}  # fmt: skip
        try:
            client.describe_stacks(StackName=name)
        except ClientError:
            client.create_stack(**order)
            client.get_waiter("stack_create_complete").wait(StackName=name)
            return f"Successfully created/updated stack - {name}\n"
        try:
            client.update_stack(**order)
        except ClientError as error:
            if "No updates" not in str(error):
                raise
            return f"No changes to deploy. Stack {name} is up to date\n"
        client.get_waiter("stack_update_complete").wait(StackName=name)
        return f"Successfully created/updated stack - {name}\n"


def _options(words: Sequence[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            values = options.setdefault(word.removeprefix("--"), [])
        else:
            values.append(word)
    return options


def _parameters(options: dict[str, list[str]], shape: Any) -> dict[str, Any]:
    """Options as parameters of boto3; without a model every one is a word, as for a waiter."""
    if shape is None:
        return {"".join(part.title() for part in key.split("-")): values[0] for key, values in options.items()}
    members = {xform_name(name, "-"): (name, member) for name, member in shape.members.items()}
    return {members[key][0]: _value(values, members[key][1]) for key, values in options.items()}


def _value(values: Sequence[str], shape: Any) -> Any:
    if shape.type_name == "list":
        return [_value([value], shape.member) for value in values]
    if shape.type_name == "structure":
        pairs = [pair.split("=", 1) for pair in values[0].split(",")]
        return {name: _value([value], shape.members[name]) for name, value in pairs}
    if shape.type_name == "boolean":
        return not values or values[0] == "true"
    return values[0]


def _text(answer: Any) -> str:
    """As `--output text`: rows of lists on lines of their own, words between tabs."""
    if isinstance(answer, list):
        if any(isinstance(row, list) for row in answer):
            return "".join(_text(row) for row in answer)
        return "\t".join(_text(word).rstrip("\n") for word in answer) + "\n" if answer else ""
    return f"{answer}\n"


@contextmanager
def aws_program(world: World, account: Any, folder: Path) -> Iterator[AwsProgram]:
    """`aws` and `sleep` in `folder`, for the PATH of a script."""
    program = AwsProgram(world, account)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            here, name, *words = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = json.dumps(program(Path(here), name, words)).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        folder.mkdir()
        for name in ("aws", "sleep"):
            text = CLIENT.format(python=sys.executable, url=f"http://127.0.0.1:{server.server_port}/")
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        try:
            yield program
        finally:
            server.shutdown()


def run_script(script: Path, programs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, *words], env={"PATH": f"{programs}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=120
    )
