"""SEC003: what has the form of a secret and is none, and secrets that are reported once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from reported import shown
from timing import cpu_seconds

from trainwright.check.finding import Finding
from trainwright.check.made_up import is_made_up

Run = Callable[..., list[Finding]]
# Random, and nobody's.
KEY = "3f9c2b7e5d1a8f60" + "c4b7e92d5a1f3c8b6e0d4a72"
TOKEN = "hf_" + "QzLmVtKxRbWnYcJdGpHsUeFoTiAkXyNwBv"
KEY_ID = "AKIA" + "Z5Q3LMX7WTVKB2RN"
SECRET_KEY = "QmFz7Y0K3NlY3Jld" + "C9rZXkvZm9yL3Rlc3Rz1x9Lp"


@pytest.mark.parametrize(
    "line",
    [
        "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AWS_ACCESS_KEY_ID=AKIAXXXXXXXXXXXXXXXX",
        "AWS_ACCESS_KEY_ID=AKIAABCDEFGHIJKLMNOP",
        "WANDB_API_KEY=your_wandb_api_key_goes_here_40_characters",
        "WANDB_API_KEY=REPLACE_WITH_YOUR_WANDB_API_KEY_FROM_SETTINGS",
        "WANDB_API_KEY=0000000000000000000000000000000000000000",
        "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567",
        "WANDB_API_KEY=deadbeefdeadbeefdeadbeefdeadbeefdeadbeef",
        "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz12345678",
        "HF_TOKEN=hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
        "HF_TOKEN=hf_REPLACEWITHYOURTOKENREPLACEWITHYOURTOKEN",
        "HF_TOKEN=/home/user/keys/huggingface/for/the/lab",
        "HUGGINGFACE_HUB_TOKEN=projects/lab/keys/hf/versions/1/latest/file",
        "AWS_SECRET_ACCESS_KEY=minio-local-development-key-only-for-this",
        "A=ghp_1234567890abcdefghijklmnopqrstuvwxyz",
        "NGC_API_KEY=nvapi-" + "X" * 60,
    ],
)
def test_an_example_is_no_secret(run: Run, line: str) -> None:
    assert run("a.sh", f"#!/bin/bash\nexport {line}\npython train.py\n", "SEC003") == []


def test_a_long_value_is_judged_in_linear_time() -> None:
    signs = random.Random(1)

    def seconds(length: int) -> float:
        text = "".join(signs.choices("bdfhjkqvz/+=BDFH12457", k=length))
        assert not is_made_up(text)
        return cpu_seconds(lambda: is_made_up(text))

    short, long = (min(seconds(length) for _ in range(3)) for length in (2_000, 16_000))
    assert long < 24 * max(short, 0.001)  # eight times the length; every half compared whole took 500 times


def test_an_example_of_a_private_key_is_none(run: Run) -> None:
    begin = "-----BEGIN RSA " + "PRIVATE KEY-----"
    text = f"#!/bin/bash\ncat > key.pem <<EOF\n{begin}\n{{}}\nEOF\n"
    assert run("a.sh", text.format("MIIEpAIBAAKCAQEA" + "x" * 48), "SEC003") == []
    real = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAABlwAAAAdzc2gtcn"
    assert shown(run("b.sh", text.format(real), "SEC003")) == ["error SEC003 3"]


@pytest.mark.parametrize("name", ["X-Amz-Credential", "AWSAccessKeyId"])
def test_a_signed_address_says_who_signed_it(run: Run, name: str) -> None:
    address = f"https://bucket.s3.amazonaws.com/data.zip?{name}={KEY_ID}%2F20190101&Expires=300"
    assert run("a.sh", f'#!/bin/bash\nwget "{address}"\npython train.py\n', "SEC003") == []


def test_the_id_of_a_key_is_no_secret_without_it(run: Run) -> None:
    given = f"#!/bin/bash\nexport AWS_ACCESS_KEY_ID={KEY_ID}\n"
    assert shown(run("a.sh", given, "SEC003")) == ["info SEC003 2"]
    assert shown(run("b.sh", f"{given}export AWS_SECRET_ACCESS_KEY={SECRET_KEY}\n", "SEC003")) == ["error SEC003 3"]
    configured = f"{given}aws configure set aws_secret_access_key {SECRET_KEY}\n"
    assert shown(run("c.sh", configured, "SEC003")) == ["error SEC003 2"]


def test_a_secret_is_reported_once(run: Run) -> None:
    twice = f"#!/bin/bash\n# {TOKEN}\nexport HF_TOKEN={TOKEN}\nhf auth login --token {TOKEN}\n"
    assert shown(run("a.sh", twice, "SEC003")) == ["error SEC003 2"]


def test_a_pod_that_starts_nothing_we_know_has_secrets_too(run: Run) -> None:
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    image: b:1\n"
    env = f"    env: [{{name: WANDB_API_KEY, value: {KEY}}}]\n"
    assert shown(run("a.yaml", pod + env, "SEC003")) == ["error SEC003 8"]


def test_a_manifest_of_a_secret_is_not_to_read_it_from_one(run: Run) -> None:
    config = "apiVersion: v1\nkind: {}\nmetadata: {{name: hf}}\n{}:\n  token: " + TOKEN + "\n"
    (finding,) = run("a.yaml", config.format("Secret", "stringData"), "SEC003")
    assert finding.fix.endswith("from the command line: kubectl create secret generic …")
    two = config.format("Secret", "data").replace(TOKEN, "a") + "---\n" + config.format("ConfigMap", "data")
    (finding,) = run("a.yaml", two, "SEC003")
    assert finding.fix == "remove it, revoke it, and read it from a secret"
