"""A recipe file of the user's own: its keys, the framework's options and the keys of its configuration are checked, and
findings stand at their lines of the recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.check.gate import check_loaded
from trainwright.check.launches.recipe_options import command_table, file_table, option_problem
from trainwright.recipes.load import foreign_names, recipe
from trainwright.recipes.model import Foreign
from trainwright.spec.load import load

HEAD = "title: mine\nmodel: llama3.1-8b\nsteps: 1000\nsequence: 8192\nbatch: {sequences: 512, micro_batch: 1}\n"
SPEC = """\
name: mine
platform: parallelcluster
region: us-east-2
zone: use2-az3
queues: [{name: train, instance: p5.48xlarge, count: 2}]
storage: [{mount: /fsx, lustre: {capacity: 4.8TiB, throughput: 250}}]
jobs: [{name: j, recipe: mine.yaml, nodes: 2, args: [ARGS]}]
"""


@pytest.fixture
def findings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(more: str, args: str = "") -> list[tuple[str, str, int, str]]:
        Path("mine.yaml").write_text(HEAD + more)
        Path("spec.yaml").write_text(SPEC.replace("ARGS", args))
        told = [f for f in check_loaded(load("spec.yaml")).findings if f.code in ("SPC004", "SPC011")]
        return [(f.level, f.file, f.span.line, f"{f.message}; {f.fix}") for f in told]

    return of


@pytest.mark.parametrize(("trainer", "level", "line", "words"), [
    ("{framework: megatron-lm,\n options: {--bf16: true,\n --clip-gradd: 0.1}}", "error", 8, "--clip-grad"),
    ("{framework: megatron-lm, options: {--seed: many}}", "error", 6, "whole number, not 'many'"),
    ("{framework: megatron-lm, options: {--transformer-impl: te}}", "error", 6, "no choice 'te'"),
    ("{framework: megatron-lm, options: {--bf16: 1}}", "error", 6, "write `--bf16: true`"),
    ("{framework: megatron-lm, options: {--my-own: 1}}", "error", 6, "no option '--my-own'"),
    ("{framework: megatron-lm, debug: {options: {--seeed: 1}}}", "error", 6, "'--seed'"),
    ("{framework: megatron-deepspeed, file: {zero_optimization.stge: 1}}", "error", 6, "zero_optimization.stage"),
    ("{framework: torchtitan, file: {compile.enabled: true}}", "error", 6, "compile.enable"),
    ("{framework: torchtitan, file: {metrics.log_freq: often}}", "error", 6, "metrics.log_freq takes a whole number"),
    ("{framework: torchtitan, file: {mine.enable: true}}", "info", 6, "that we know"),
    ("{framework: trl, options: {--lora-rnk: 16}}", "error", 6, "--lora-rank"),
    ("{framework: verl, options: {trainer.total_epoch: 16}}", "error", 6, "trainer.total_epochs"),
    ("{command: [python, pretrain_gpt.py, --seq-lenth, '{sequence}', --lr, '{lr}']}", "error", 6, "--seq-length"),
])  # fmt: skip
def test_an_option_that_the_framework_does_not_have(findings, trainer, level, line, words):
    told = [one for one in findings(f"trainer: {trainer}\n") if words in one[3]]
    assert [(one[0], one[1], one[2]) for one in told] == [(level, "mine.yaml", line)], told


@pytest.mark.parametrize(("more", "line", "words"), [
    ("optimizer: {lr: 1.0e-4,\n warmpu: 3}\n", 7, "unknown key 'warmpu'; did you mean 'warmup'?"),
    ("optimizer: {lr: 1.0e-4,\n warmup: 2000}\n", 7, "warmup (2000) is not shorter than the run"),
    ("checkpoint:\n  steps: 5000\n", 7, "no checkpoint is ever reached"),
    ("options:\n  base: x\n  lora_rnk: 16\n", 8, "no option 'lora_rnk'; did you mean 'lora_rank'?"),
    ("options: {lora_rank: many}\n", 6, "lora_rank takes a whole number, not 'many'"),
    ("options: {offload_optimizer: 3}\n", 6, "offload_optimizer takes true or false"),
    ("options: {lora_rank: 8}\ntrainer: {framework: torchtitan}\n", 6, "write it under `trainer.options`"),
])  # fmt: skip
def test_a_mistake_in_a_recipe_stands_at_its_line(findings, more, line, words):
    told = [one for one in findings(more) if words in one[3]]
    assert [(one[0], one[1], one[2]) for one in told] == [("error", "mine.yaml", line)], told


def test_every_mistake_of_a_recipe_is_reported(findings):
    told = findings("stepz: 3\noptimizer: {lrr: 3}\n")
    assert [one[2] for one in told] == [6, 7, 7]  # `lr` is missing there too


def test_arguments_for_a_program_of_ours(findings):
    told = findings("trainer: {framework: trl}\n", "--lora-rnk, '16', --seed=x, --fsdp")
    assert [(one[1], one[2]) for one in told] == [("spec.yaml", 7)] * 2
    assert "'--lora-rank'" in told[0][3]
    assert findings("trainer: {framework: trl}\n", "--lora-rank, '16'") == []


def test_the_recipes_that_come_with_us_have_no_such_mistake():
    """Also of programs of ours, whose options are read from their source."""
    wrong = []
    for name in foreign_names():
        trainer = recipe(name).trainer
        assert isinstance(trainer, Foreign)
        for part in (trainer, trainer.debug, *(trainer.known.parts() if trainer.known else ())):
            for table, keys in ((command_table(trainer), part.options), (file_table(trainer), part.file)):
                pairs = keys.items() if table is not None else ()
                wrong += [(name, key, told) for key, value in pairs if (told := option_problem(table, key, value))]
    assert [one for one in wrong if one[2][2] != "info"] == []


def test_a_value_that_the_framework_cannot_be_given_stands_at_its_line(findings):
    told = findings("optimizer:\n  lr: 1.0e-4\n  betas: [0.9, 0.99]\ntrainer: {framework: picotron}\n")
    assert [one[:3] for one in told if "no option for `optimizer.betas`" in one[3]] == [("error", "mine.yaml", 8)]


def test_what_a_command_of_a_recipe_does_not_get_is_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = "trainer: {command: [python, their.py, --lr, '{lr}', --b1, '{beta1}']}\n"
    Path("mine.yaml").write_text(f"{HEAD}{command}optimizer: {{lr: 1.0e-4, betas: [0.9, 0.99], clip: 0.5}}\n")
    Path("spec.yaml").write_text(SPEC.replace("args: [ARGS]", "steps: 1000"))
    told = [f for f in check_loaded(load("spec.yaml")).findings if f.code == "SPC012"]
    assert [(f.file, f.span.line) for f in told] == [("mine.yaml", 4)]
    assert "`sequence`, `batch.sequences`, `batch.micro_batch`, `optimizer.clip`" in told[0].message
