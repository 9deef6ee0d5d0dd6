"""A framework that is told a model's sizes one by one is told all of it, or the job is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.jobs.framework_models import unsaid_properties
from trainwright.jobs.frameworks import framework_launch
from trainwright.jobs.places import places_in
from trainwright.jobs.resolve import resolve_job
from trainwright.recipes.framework import framework, frameworks
from trainwright.schedulers.launch import Place, launch_of
from trainwright.schedulers.slurm import SlurmScheduler
from trainwright.spec.load import load
from trainwright.train.models.shape import lookup


def resolved(folder: Path, trainer: str, *, model: str = "llama2-7b", more: str = "", job: str = ""):
    (folder / "own.yaml").write_text(
        f"title: one of ours\nmodel: {model}\nsequence: 4096\nbatch: {{sequences: 256}}\nsteps: 1000\n"
        f"trainer: {{framework: {trainer}}}\noptimizer: {{lr: 3e-4, warmup: 10}}\n{more}"
    )
    (folder / "spec.yaml").write_text(
        "name: c\nplatform: parallelcluster\nregion: us-east-2\n"
        "queues: [{name: gpu, instance: p5.48xlarge, count: 4}]\nstorage: [{mount: /fsx, lustre: {}}]\n"
        f"jobs: [{{name: j, recipe: own.yaml, nodes: 2, container: registry/image:1{job}}}]\n"
    )
    return resolve_job(load(folder / "spec.yaml"))


@pytest.mark.parametrize(
    ("trainer", "model", "lost"),
    [
        ("megatron-lm", "gpt3-7.5b", []),
        ("megatron-lm", "llama2-70b", []),
        ("megatron-lm", "llama3.1-8b", []),
        ("megatron-lm", "qwen3-8b", []),
        ("megatron-lm", "mixtral-8x7b", []),
        ("megatron-lm", "bert-large", ["kind"]),
        ("megatron-lm", "falcon-7b", ["parallel_block"]),
        ("megatron-deepspeed", "mixtral-8x7b", ["experts"]),
        ("megatron-deepspeed", "qwen3-8b", ["qk_norm"]),
        ("megatron-deepspeed", "llama3.1-8b", ["rope_scaling"]),
        ("nemo1", "mpt-7b", ["position"]),
    ],
)
def test_a_property_without_an_option_is_named(trainer: str, model: str, lost: list[str]) -> None:
    assert unsaid_properties(framework(trainer), lookup(model)) == lost


def test_latent_attention_is_not_dropped_in_silence() -> None:
    assert {"latent_kv", "shared_ffn"} <= set(unsaid_properties(framework("megatron-lm"), lookup("deepseek-v2-lite")))


def test_every_framework_that_states_sizes_says_so_or_names_its_models() -> None:
    for name in frameworks():
        known = framework(name)
        if "hidden" in places_in(known.options) | places_in(known.file):
            assert known.spells_shape or known.models, name


def test_another_model_than_the_predicted_one_is_refused(tmp_path: Path) -> None:
    problems = resolved(tmp_path, "megatron-deepspeed", model="qwen3-8b").problems
    assert [(p.code, "qk_norm" in p.what) for p in problems] == [("SPC004", True)]


def test_a_model_of_unknown_sizes_is_refused(tmp_path: Path) -> None:
    (problem,) = resolved(tmp_path, "megatron-lm", model="some-lab/some-model").problems
    assert "not known" in problem.what


@pytest.mark.parametrize(
    ("more", "what"), [("data: s3://b/tokens\n", "s3://b/tokens"), ("checkpoint: {to: 's3://b/c'}\n", "s3://b/c")]
)
def test_an_address_that_a_framework_takes_for_a_path_is_refused(tmp_path: Path, more: str, what: str) -> None:
    (problem,) = resolved(tmp_path, "megatron-lm", more=more).problems
    assert what in problem.what


def test_where_a_recipe_keeps_checkpoints_is_told_to_the_job(tmp_path: Path) -> None:
    """The job script looks there before it is queued again, whoever named the folder."""
    job = resolved(tmp_path, "megatron-lm", more="checkpoint: {to: '/fsx/check points', steps: 100}\n").require()
    launch = launch_of(job, Place(Path("/fsx/runs/j"), "python3"))
    assert {line.name: line.value for line in launch.environment}["TRAINWRIGHT_CHECKPOINTS"] == "/fsx/check points"


def test_decay_of_a_decoupled_optimizer_is_not_ten_percent_a_step(tmp_path: Path) -> None:
    job = resolved(tmp_path, "llm-foundry", model="mpt-7b").require()
    text = framework_launch(job, tmp_path, tmp_path).files["llm-foundry.yaml"]
    assert yaml.safe_load(text)["optimizer"]["weight_decay"] == pytest.approx(0.1 * 3e-4)


@pytest.mark.parametrize("recipe", ["nemo2-h100-llama3-8b-debug", "maxtext-llama3.1-8b-debug"])
def test_this_machine_runs_no_image_and_needs_none_of_a_recipe(recipe: str) -> None:
    words = ["submit", "--recipe", recipe, "--scheduler", "process", "--processes", "2", "--dry-run"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_trainer_that_saves_when_stopped_is_stopped_early_enough(tmp_path: Path) -> None:
    """Megatron-LM looks at the signal once per step, and its first checkpoint may be hours away."""
    saves = resolved(tmp_path, "megatron-lm").require()
    script = SlurmScheduler().render(launch_of(saves, Place(Path("/fsx/runs/j"), "python3"))).text
    before = script.split("scancel --signal=TERM")[0]
    assert "- 300))" in before
    assert "-newermt" not in before, "it is asked to save whether or not it has saved before"
    assert "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=270" in script
