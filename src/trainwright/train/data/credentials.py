"""AWS credentials for a node, in the order AWS's own tools look: environment, shared file, container, instance."""

from __future__ import annotations

import configparser
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trainwright.errors import UserError

REFRESH_BEFORE = 300.0  # seconds before they expire


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair, with a session token and an end where they are temporary."""

    key: str
    secret: str
    token: str = ""
    expires: float = float("inf")

    @property
    def fresh(self) -> bool:
        return time.time() < self.expires - REFRESH_BEFORE


def find_credentials() -> Credentials:
    """The first credentials found; a UserError when there are none."""
    for provider in (from_environment, from_file, from_container, from_instance):
        credentials = provider()
        if credentials:
            return credentials
    raise UserError(
        "no AWS credentials on this node",
        fix="attach a role to the node, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )


def from_environment() -> Credentials | None:
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    return Credentials(key, secret, os.environ.get("AWS_SESSION_TOKEN", "")) if key and secret else None


def from_file() -> Credentials | None:
    """The shared credentials file, profile AWS_PROFILE or `default`."""
    path = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    parser = configparser.ConfigParser()
    parser.read(path)
    profile = os.environ.get("AWS_PROFILE", "default")
    if not parser.has_option(profile, "aws_secret_access_key"):
        return None
    section = parser[profile]
    return Credentials(
        section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token", "")
    )


def from_container() -> Credentials | None:
    """The endpoint that ECS and EKS Pod Identity name in the environment."""
    relative, full = (os.environ.get(f"AWS_CONTAINER_CREDENTIALS_{w}_URI") for w in ("RELATIVE", "FULL"))
    if not relative and not full:
        return None
    headers = {}
    if token_file := os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        headers["Authorization"] = Path(token_file).read_text(encoding="utf-8")
    return parse(fetch(full or f"http://169.254.170.2{relative}", headers))


def from_instance() -> Credentials | None:
    """The role of the instance, from its metadata service (version 2); None when this is no EC2 instance."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    try:
        token = imds_token()
        headers = {"X-aws-ec2-metadata-token": token}
        base = f"{imds()}/latest/meta-data/iam/security-credentials/"
        role = fetch(base, headers).split()[0]
        return parse(fetch(base + role, headers))
    except (urllib.error.URLError, TimeoutError, IndexError):
        return None


def imds() -> str:
    """The address of the instance's metadata service."""
    return os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")


def imds_token() -> str:
    """A short-lived token for the metadata service."""
    request = urllib.request.Request(
        f"{imds()}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
    )
    with urllib.request.urlopen(request, timeout=1) as answer:
        return answer.read().decode()


def fetch(url: str, headers: dict[str, str]) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=2) as answer:
        return answer.read().decode()


def parse(text: str) -> Credentials:
    raw = json.loads(text)
    expires = datetime.fromisoformat(raw["Expiration"].replace("Z", "+00:00")).timestamp()
    return Credentials(raw["AccessKeyId"], raw["SecretAccessKey"], raw["Token"], expires)
