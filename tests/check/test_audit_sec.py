"""SEC005: who can see a secret on a command line, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]
HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:1\n"
IMAGE = "FROM pytorch/pytorch:2.4\nARG HF_TOKEN\n"
KEY = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.sbatch", HEAD + "wandb login $KEY\n", ["warning SEC005 4"]),
        ("a.sbatch", HEAD + "docker login -u me -p $PASS registry.io\n", ["warning SEC005 4"]),
        ("a.sbatch", HEAD + "#SBATCH --mem=0\nwandb login $KEY\n", ["info SEC005 5"]),  # the whole node
        ("a.sbatch", HEAD + "huggingface-cli login --token $T --add-to-git-credential\n", ["info SEC005 4"]),
        ("a.sbatch", HEAD + "wandb login YOUR_API_KEY\n", ["info SEC005 4"]),
        ("a.sh", "#!/bin/bash\nwandb login xxxxxxxx\ntorchrun a.py\n", ["info SEC005 2"]),
        ("a.sh", "#!/bin/bash\nwandb login [KEY]\ntorchrun a.py\n", ["info SEC005 2"]),
        ("a.sh", "#!/bin/bash\nhuggingface-cli login --token <your token>\ntorchrun a.py\n", ["info SEC005 2"]),
        ("a.sh", "#!/bin/bash\nhuggingface-cli login --token hf_...\ntorchrun a.py\n", ["info SEC005 2"]),
        ("Dockerfile", IMAGE + "RUN huggingface-cli login --token $HF_TOKEN\n", ["warning SEC005 3"]),
        ("Dockerfile", IMAGE + "RUN --mount=type=secret,id=a \\\n  hf auth login --token $T\n", ["info SEC005 4"]),
        ("a.sbatch", HEAD + "echo $P | docker login -u me --password-stdin\nwandb login < key.txt\n", []),
        ("a.sbatch", HEAD + "hf auth switch --token-name me\nwandb login --relogin\ndocker login\n", []),
        ("a.sbatch", HEAD + "python a.py --hf_token ~/.hf/token --wandb_key none\n", []),
    ],
)
def test_who_sees_the_secret(run: Run, name: str, text: str, expected: list[str]) -> None:
    assert shown(run(name, text, "SEC005")) == expected


@pytest.mark.parametrize(
    ("name", "text", "message", "fix"),
    [
        (
            "a.sh",
            f"#!/bin/bash\nwandb login {KEY}\ntorchrun a.py\n",
            "is written in this file",
            "revoke it, remove the login",
        ),
        ("Dockerfile", IMAGE + "RUN hf auth login --token $HF_TOKEN\n", "stays in the image", "set HF_TOKEN when the"),
        (
            "a.sbatch",
            HEAD + "python a.py --hf_token $T\n",
            "`ps` shows",
            "let the program read HF_TOKEN from the environment, and leave",
        ),
    ],
)
def test_what_is_said_of_it(run: Run, name: str, text: str, message: str, fix: str) -> None:
    [finding] = run(name, text, "SEC005")
    assert message in finding.message
    assert finding.fix.startswith(fix)


def test_a_token_that_is_written_down_is_reported_once(run: Run) -> None:
    token = "hf_" + "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cF"
    text = f"{HEAD}huggingface-cli login --token {token}\npython a.py --hf_token {token}\n"
    assert [one[:12] for one in shown(run("a.sbatch", text, "SEC003", "SEC005"))] == ["error SEC003"]


REAL = "hf_" + "QzLmVtKxRbWnYcJdGpHsUeFoTiAkXyNwBv"


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (REAL, ["error SEC003 4"]),
        ("hf_abcdefghijklmnopqrstuvwxyz12345678", ["info SEC005 4"]),
        ("hf_REPLACEWITHYOURTOKENREPLACEWITHYOURTOKEN", ["info SEC005 4"]),
        ("hf_deadbeefdeadbeefdeadbeefdeadbeef", ["info SEC005 4"]),
        ("hf_" + "x" * 34, ["info SEC005 4"]),
        ("$HF_TOKEN", ["warning SEC005 4"]),
    ],
)
@pytest.mark.parametrize("start", ["huggingface-cli login --token", "srun python train.py --hf_token"])
def test_a_token_is_reported_by_one_of_the_two_rules(run: Run, start: str, token: str, expected: list[str]) -> None:
    assert shown(run("a.sbatch", f"{HEAD}{start} {token}\n", "SEC003", "SEC005")) == expected


def test_a_simple_password_is_no_example(run: Run) -> None:
    """Only of tokens the form says what a real one looks like."""
    assert shown(run("a.sbatch", f"{HEAD}docker login -u me -p 1234 registry.io\n", "SEC005")) == ["warning SEC005 4"]
