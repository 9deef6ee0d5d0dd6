"""The `catalog` verb: pages a person reads, JSON a script reads, errors with a fix."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from trainwright.catalog.prices import price_date
from trainwright.cli.catalog import command
from trainwright.errors import UserError


def run(*words):
    result = CliRunner().invoke(command, list(words))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_show_p5_has_the_facts_and_the_date_of_the_price():
    page = run("show", "p5.48xlarge")
    for words in (
        "8 × NVIDIA H100",
        "18 links, 450 GB/s",
        "32, 32 EFA, 100 Gbps each",
        "cards 1-31 device 1 efa-only",
        "2 sockets × 48 cores",
        "8 × 3,800 GB",
        f"as of {price_date()}",
        "L-417A185B",
        "private subnet",
        "NCCL 2.18.0 or newer",
        "us-east-1",
    ):
        assert words in page
    assert "\x1b" not in page
    assert all(line == line.rstrip() for line in page.splitlines())
    prices = [line for line in page.splitlines() if "$" in line and "US East" in line]
    assert "$55.04" in prices[0]


def test_show_one_region_and_every_region():
    assert "eu-north-1" not in run("show", "p5.48xlarge", "--region", "us-east-2")
    assert "more regions" in run("show", "p5.48xlarge")
    assert "more regions" not in run("show", "p5.48xlarge", "--all")


def test_show_as_json():
    facts = json.loads(run("show", "ml.p5.48xlarge", "--json"))["facts"]
    assert (facts["name"], facts["gpus"], facts["efa_cards"]) == ("p5.48xlarge", 8, 32)
    assert all(p["date"] and p["source"] for p in facts["prices"])


def test_show_accelerator_and_model():
    assert "$6.88 per chip-hour" in run("show", "h100")
    assert "best matmul" in run("show", "h100")
    page = run("show", "llama3-8b")
    assert "8,030,261,248 (8.03 B)" in page
    assert "32, 8 key-value heads, 128 wide" in page
    assert json.loads(run("show", "t5-small", "--json"))["facts"]["parameters"] == 60506624


@pytest.mark.parametrize(
    "name", ["p3dn.24xlarge", "trn2.48xlarge", "g6f.xlarge", "m5.large", "hpc7a.12xlarge", "mi300x"]
)
def test_every_kind_of_page_can_be_printed(name):
    assert name in run("show", name)


def test_show_unknown_offers_the_nearest():
    with pytest.raises(UserError) as error:
        run("show", "p5.48xlrge")
    assert "p5.48xlarge" in error.value.fix
    with pytest.raises(UserError):
        run("show", "p5.48xlarge", "--region", "us-moon-1")


def test_list_defaults_to_accelerators():
    names = {line.split()[0] for line in run("list").splitlines()[1:]}
    assert {"p5.48xlarge", "trn1.32xlarge", "g5.xlarge"} <= names
    assert "m5.large" not in names


def test_list_filters():
    gpu = json.loads(run("list", "--gpu", "--json"))
    assert gpu
    assert all(row["gpus"] for row in gpu)
    neuron = {row["family"] for row in json.loads(run("list", "--neuron", "--json"))}
    assert neuron == {"inf1", "inf2", "trn1", "trn1n", "trn2", "trn2u"}
    assert {row["family"] for row in json.loads(run("list", "--family", "m5", "--json"))} == {"m5"}
    assert all(row["efa_cards"] for row in json.loads(run("list", "--gpu", "--efa", "--json")))
    with pytest.raises(UserError) as error:
        run("list", "--family", "p55")
    assert "p5" in error.value.fix


def test_list_prices_of_one_region():
    line = next(line for line in run("list", "--family", "p5", "--region", "eu-west-2").splitlines() if ".48x" in line)
    assert line.split()[-2:] == ["71.55", "15.81"]
    assert "p6-b200" not in run("list", "--gpu", "--region", "eu-west-2")


@pytest.mark.parametrize(("kind", "word"), [("accelerators", "h100"), ("models", "t5-small"), ("regions", "use2-az1")])
def test_list_other_kinds(kind, word):
    assert word in run("list", "--kind", kind)
    assert json.loads(run("list", "--kind", kind, "--json"))


def test_update_without_credentials_fails_honestly(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    env |= {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "XDG_DATA_HOME": str(tmp_path),
    }
    words = [sys.executable, "-m", "trainwright", "catalog", "update", "--region", "us-east-1"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no AWS credentials" in done.stderr
    assert "fix:" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "trainwright").exists()
