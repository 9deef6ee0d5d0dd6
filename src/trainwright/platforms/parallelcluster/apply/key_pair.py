"""The key pair for ssh to the head node: made by `up` where it is missing, removed by `down`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.aws.cloudformation import CLUSTER_TAG
from trainwright.aws.session import Account, AwsRefused, aws_errors
from trainwright.errors import UserError
from trainwright.home import home
from trainwright.platforms.apply.steps import Step


def key_file(name: str, region: str) -> Path:
    """Where the private key of a pair that `up` made lies."""
    return home() / "keys" / f"{name}.{region}"


@dataclass
class KeyPair(Step):
    """An ed25519 key pair. The private key is made on this machine, for its user alone, and never leaves it; AWS gets
    the public one. A pair of that name that is there already is used as it is."""

    account: Account = field(kw_only=True)
    name: str = field(kw_only=True)
    tags: Mapping[str, str] = field(kw_only=True)

    def advance(self) -> bool:
        if find_key(self.account, self.name) is None:
            self._import(self._public_key())
            self.now("ready", f"private key: {key_file(self.name, self.account.region)}")
        else:
            self.now("ready")
        return True

    def _public_key(self) -> bytes:
        path = key_file(self.name, self.account.region)
        public = path.with_name(f"{path.name}.pub")
        if not path.is_file() or not public.is_file():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.unlink(missing_ok=True)
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", str(path)]
            try:
                done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            except FileNotFoundError:
                raise UserError("ssh-keygen is not installed", fix="install openssh-client") from None
            if done.returncode:
                raise UserError(f"no key could be made: {done.stderr.strip()}", where=str(path))
            os.chmod(path, 0o600)
        return public.read_bytes()

    def _import(self, public: bytes) -> None:
        rows = [{"Key": key, "Value": value} for key, value in self.tags.items()]
        try:
            with aws_errors(f"key pair {self.name}"):
                self.account.client("ec2").import_key_pair(
                    KeyName=self.name,
                    PublicKeyMaterial=public,
                    TagSpecifications=[{"ResourceType": "key-pair", "Tags": rows}],
                )
        except AwsRefused as error:
            if error.code != "InvalidKeyPair.Duplicate":  # somebody else's run was faster
                raise


def find_key(account: Account, name: str) -> dict[str, Any] | None:
    try:
        with aws_errors(f"key pair {name}"):
            rows = account.client("ec2").describe_key_pairs(KeyNames=[name])["KeyPairs"]
    except AwsRefused as error:
        if error.code == "InvalidKeyPair.NotFound":
            return None
        raise
    return dict(rows[0])


@dataclass
class KeyPairsDown(Step):
    """Delete the key pairs that `up` made for this cluster. The private key stays on the machine that has it."""

    account: Account = field(kw_only=True)
    cluster: str = field(kw_only=True)

    def advance(self) -> bool:
        ec2 = self.account.client("ec2")
        with aws_errors("key pairs"):
            only = [{"Name": f"tag:{CLUSTER_TAG}", "Values": [self.cluster]}]
            names = [row["KeyName"] for row in ec2.describe_key_pairs(Filters=only)["KeyPairs"]]
            for name in names:
                ec2.delete_key_pair(KeyName=name)
        self.now("gone", ", ".join(names))
        return True
