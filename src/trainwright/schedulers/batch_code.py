"""How a container of AWS Batch gets the code of a run: Python's standard library and our S3 client, which signs with
the job's role, as one word of the command. The image needs neither boto3 nor the AWS command line. Without a place in
S3, the small files of a framework are in the command itself."""

from __future__ import annotations

import base64
import json
import shlex
import zlib
from functools import cache
from pathlib import Path

import trainwright
from trainwright.schedulers.base import Launch

CODE_SHA256, CODE_REGION = "TRAINWRIGHT_CODE_SHA256", "TRAINWRIGHT_CODE_REGION"  # known when the code is packed
# In the order of their imports. Together they take 8 of the 24 KiB of a job definition.
MODULES = ("errors", "train.data.credentials", "train.data.s3", "schedulers.fetch_code")
UNPACK = """\
import base64,json,sys,types,zlib
for name,text in json.loads(zlib.decompress(base64.b64decode("{packed}"))).items():
    sys.modules[name]=types.ModuleType(name);exec(text,sys.modules[name].__dict__)
sys.modules["trainwright.schedulers.fetch_code"].by_role(*sys.argv[1:])"""


WRITE = """\
import base64,json,os,sys,zlib
for path,text in json.loads(zlib.decompress(base64.b85decode(sys.argv[1]))).items():
    os.makedirs(os.path.dirname(path),exist_ok=True);open(path,"w",encoding="utf-8").write(text)"""


def write_command(launch: Launch) -> str:
    """Shell words that write the files of a framework. Compressed together, since our programs have much in common."""
    packed = zlib.compress(json.dumps(dict(launch.files)).encode(), 9)
    return shlex.join(["python3", "-c", WRITE, base64.b85encode(packed).decode()])


def fetch_command(launch: Launch) -> str:
    """Shell words that fetch the code into its folder, or fail."""
    archive = f"{launch.folder}/code.tar.gz"
    words = [archive, launch.code, f"{launch.code_store}/{launch.folder.name}.tar.gz"]
    fetch = shlex.join(["python3", "-c", UNPACK.format(packed=_packed()), *words])
    return f'mkdir -p {shlex.quote(launch.code)} && AWS_REGION="${CODE_REGION}" {fetch}'


@cache
def _packed() -> str:
    folder = Path(trainwright.__file__).parent
    texts = {f"trainwright.{name}": (folder / f"{name.replace('.', '/')}.py").read_text() for name in MODULES}
    return base64.b64encode(zlib.compress(json.dumps(texts).encode(), 9)).decode()
