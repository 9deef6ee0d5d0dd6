"""Formats beside YAML and shell: Terraform, TOML, Slurm's own files, values of Helm charts, trainers' configurations.
Every one keeps the places of what it reads, and takes what it cannot know as unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.engine import check
from trainwright.check.readers.hcl_source import parse_hcl
from trainwright.check.readers.recognise import read_file
from trainwright.check.readers.slurm_conf import hosts
from trainwright.check.readers.toml_source import parse_toml
from trainwright.spec.source import SourceError

HCL = """# a comment
locals { name = "train-${var.env}" } // another
module "eks" {
  cluster_version = "1.33"
  tags = merge(local.tags, {
    "a" = "}"
  })
  groups = {
    "${local.name}" = { sizes = [1, 2,], spot = false }
    (var.key)       = null
  }
  labels = { for k, v in var.labels : k => v }
  user_data = <<-EOT
    echo "{" # no block
  EOT
  dynamic "ingress" {
    for_each = var.ports
    content { from_port = ingress.value }
  }
  ingress { from_port = 22 }
  ingress {
    from_port = var.ssh ? 22 : 2222
  }
}
"""


def test_hcl_keeps_places_and_takes_expressions_as_unknown() -> None:
    local, module = parse_hcl(HCL, "main.tf")
    assert (local.kind, module.kind, module.labels, module.span.line) == ("locals", "module", ("eks",), 3)
    assert local.body.get("name").text.startswith("${")
    version = module.body.get("cluster_version")
    assert (version.value, version.span.line, version.span.column) == ("1.33", 4, 21)
    assert module.body.get("tags").text.startswith("${merge(")
    inner = module.body.get("groups", "${local.name}")
    assert inner.plain() == {"sizes": [1, 2], "spot": False}
    assert [node.is_map for node in module.body.get("ingress").elements()] == [False, True, True]
    assert module.body.get("user_data").text == "${heredoc}"


@pytest.mark.parametrize("text", ['a "b" {', 'x = "', "resource {{", "a = <<E\nb\n", "= 3", "a {" * 100])
def test_broken_hcl_is_an_error_with_a_place(text: str) -> None:
    with pytest.raises(SourceError) as caught:
        parse_hcl(text, "main.tf")
    assert caught.value.span.line >= 1


def test_toml_keeps_places() -> None:
    root = parse_toml('[training]  # x\nsteps = 3_000 # "#"\n[parallelism]\n"tensor_parallel_degree" = 8\n', "a.toml")
    steps = root.get("training", "steps")
    assert (steps.value, steps.span.line, steps.span.column, steps.span.end_column) == (3000, 2, 9, 14)
    assert root.get("parallelism").key_span("tensor_parallel_degree").line == 4
    with pytest.raises(SourceError) as caught:
        parse_toml("[training]\nsteps = \n", "a.toml")
    assert caught.value.span.line == 2


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[01-03],login", ["gpu01", "gpu02", "gpu03", "login"]),
        ("r[1-2]n[08,10]", ["r1n08", "r1n10", "r2n08", "r2n10"]),
        ("/dev/nvidia[0-1]", ["/dev/nvidia0", "/dev/nvidia1"]),
        ("n[1-x]", None),
        ("n[0-99999999]", None),
        ("$NODES", None),
    ],
)
def test_host_lists(text: str, names: list[str] | None) -> None:
    assert hosts(text) == names


TORCHTITAN = (
    "[training]\nsteps = 100\n[lr_scheduler]\nwarmup_steps = 200\n[checkpoint]\nenable = true\ninterval = 500\n"
)
NEMO = """trainer: {devices: 8, num_nodes: 2, max_steps: 1000}
model:
  tensor_model_parallel_size: 3
  hidden_size: 4096
  num_attention_heads: 32
"""
FOUNDRY = """max_duration: 1000ba
global_train_batch_size: 256
device_train_microbatch_size: 4
scheduler: {name: cosine_with_warmup, t_warmup: 2000ba}
model: {d_model: 2048, n_heads: 15, n_layers: 24}
"""
VALUES = """worker:
  image: {repository: registry.example.com/train, tag: latest}
  resources:
    requests: {nvidia.com/gpu: 4}
    limits: {nvidia.com/gpu: 8}
"""
FILES = [
    ("titan.toml", TORCHTITAN, ["JOB011 7"]),
    ("nemo.yaml", NEMO, ["JOB002 3"]),
    ("foundry.yaml", FOUNDRY, ["JOB005 4", "JOB004 5"]),
    ("foundry.yaml", FOUNDRY.replace("2000ba", "2ep").replace("15", "16"), []),
    ("values.yaml", VALUES, ["IMG003 2", "K8S001 4"]),
    ("other.yaml", VALUES, None),
    ("pyproject.toml", "[tool.x]\na = 1\n", None),
    ("ansible.tf", 'variable "x" {}\n', None),
]


@pytest.mark.parametrize(("name", "text", "expected"), FILES)
def test_findings_in_new_formats(tmp_path: Path, name: str, text: str, expected: list[str] | None) -> None:
    path = tmp_path / name
    path.write_text(text)
    if expected is None:
        assert read_file(str(path), text) is None
    else:
        assert [f"{f.code} {f.span.line}" for f in check([str(path)]).findings] == expected
