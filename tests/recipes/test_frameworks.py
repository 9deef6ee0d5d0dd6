"""Frameworks as data: every recipe's options exist in the framework with that type, nothing that a job states is lost,
and a job runs under every scheduler with its configuration file."""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import tomllib
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from resolving import loaded, resolution, resolved
from trainwright.catalog.families import family_of
from trainwright.catalog.framework_flags import check_options, find_option, options_of
from trainwright.check.engine import check
from trainwright.cli.main import cli
from trainwright.jobs.frameworks import framework_launch, option_words, quote_but_variables
from trainwright.jobs.inputs import inputs_of, makes
from trainwright.jobs.resolve import resolve_job
from trainwright.recipes.config_text import config_text, nested
from trainwright.recipes.framework import framework, frameworks
from trainwright.recipes.load import all_names, foreign_names, header, recipe
from trainwright.recipes.model import Foreign
from trainwright.runs.log_formats import formats

FOLDER = Path("/fsx/runs/r-1")
# A word of a recipe's hardware -> an instance type that has it.
MACHINES = {
    "trn1": "trn1.32xlarge", "B200": "p6-b200.48xlarge", "H200": "p5en.48xlarge", "H100": "p5.48xlarge",
    "A100 80 GB": "p4de.24xlarge", "A100": "p4d.24xlarge", "L40S": "g6e.48xlarge", "A10G": "g5.12xlarge",
    "g5.12xlarge": "g5.12xlarge",
}  # fmt: skip


def flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
    """The keys of a nested configuration, joined by dots."""
    keys: dict[str, Any] = {}
    for key, value in tree.items():
        keys |= flat(value, f"{before}{key}.") if isinstance(value, dict) else {f"{before}{key}": value}
    return keys


def is_known(table: str, version: str, name: str) -> bool:
    """Whether the framework has that option, in the version that we name where its table tells versions apart."""
    option = find_option(table, name)
    several = {one for known in options_of(table).values() for one in known.versions}
    return option is not None and (version not in several or version in option.versions)


def has_key(table: str, version: str, key: str) -> bool:
    """Whether a configuration has that key, or a mapping that holds it."""
    parents = [key.rsplit(".", depth)[0] for depth in range(key.count(".") + 1)]
    return any(is_known(table, version, one) for one in parents)


@pytest.mark.parametrize("name", frameworks())
def test_a_framework_names_only_options_that_exist(name: str) -> None:
    known = framework(name)
    if known.flags is None:
        return
    assert options_of(known.flags), known.flags
    for part in (*known.parts(), known.debug):
        for option in part.options:
            assert is_known(known.flags, known.version, option.rstrip("=").lstrip("+")), option
        dashes = "--" if known.config and known.config.endswith(".toml") else ""
        for key in part.file if options_of(known.flags).keys() & {f"{dashes}{key}" for key in part.file} else ():
            assert has_key(known.flags, known.version, f"{dashes}{key}"), key


@pytest.mark.parametrize("name", [f"{name}{size}" for name in foreign_names() for size in ("", "-debug")])
def test_a_recipe_gives_options_of_the_right_type(name: str) -> None:
    this = recipe(name)
    assert isinstance(this.trainer, Foreign)
    known = this.trainer.known
    assert known is not None
    job = resolve_job(loaded(written_for(name)), "j").require()
    launch = framework_launch(job, FOLDER, FOLDER / "code")
    if known.flags is not None:
        assert check_options(known.flags, launch.options) == []
        if known.config and known.config.endswith(".toml"):
            keys = flat(tomllib.loads(launch.files[known.config]))
            words = [word for key, value in keys.items() for word in option_words(f"--{key}=", value)]
            assert check_options(known.flags, words) == []
    assert "{" not in " ".join(launch.command).replace("${", "")
    assert "None" not in launch.command


@pytest.mark.parametrize("name", foreign_names())
def test_a_job_names_what_it_reads_and_how_it_is_made(name: str) -> None:
    """The command stood in the recipe, and nobody ever saw it."""
    inputs = inputs_of(resolve_job(loaded(written_for(name)), "j").require())
    data = recipe(name).data
    if data.startswith("/"):
        assert any(data in path for path in inputs.paths), inputs
    assert "{" not in inputs.prepare
    assert not any("checkpoints" in path for path in inputs.paths)  # which the job writes
    steps = re.split(r" && (?=hf|torchrun)", inputs.prepare) if inputs.prepare else []
    assert all(makes(shlex.split(step), inputs.paths) for step in steps), inputs
    stated = recipe(name).trainer.known.prepare
    if "{data_prefix}" in stated and not data.startswith("builtin:"):
        prefix = re.findall(r"--output-prefix (\S+)", inputs.prepare)
        assert not prefix or f"{prefix[0]}_text_document" in inputs.paths, inputs


FIRST = {recipe(name).trainer.framework: name for name in foreign_names()}  # one recipe per framework


@pytest.mark.parametrize("name", [FIRST[name] for name in FIRST if name])
def test_a_debug_size_on_mock_data_needs_no_tokenizer(name: str) -> None:
    debug = recipe(f"{name}-debug")
    shown = header(f"{name}-debug")
    inputs = inputs_of(resolve_job(loaded(written_for(f"{name}-debug")), "j").require())
    if debug.data.startswith("builtin:") and not inputs.paths:  # some frameworks have no data of their own
        for text in (shown, inputs.prepare):
            assert "tokenizer" not in text, text
            assert "builtin:" not in text.partition("Prepare:")[2], text


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("megatron-lm-llama2-7b", "--output-prefix /fsx/data/llama2/c4 "),
        ("megatron-deepspeed-gpt3-7.5b", "--output-prefix /fsx/data/oscar/gpt "),
        ("neuronx-distributed-llama3-8b", " /fsx/data/wikicorpus_llama3_tokenized_8k"),
        ("bionemo-esm2-650m", " /fsx/data/uniref"),
        ("fairseq-roberta-large", "--destdir /fsx/data/wikitext-103/data-bin "),
        (
            "optimum-neuron-llama3-8b-lora",
            "-15k.jsonl --repo-type dataset --local-dir /fsx/data; a gated",
        ),
        ("trl-llama3.1-8b-lora", "downloads meta-llama/Llama-3.1-8B; a gated repository needs HF_TOKEN"),
        ("hf-distillation", "downloads meta-llama/Llama-3.2-1B, meta-llama/Llama-3.1-8B; a gated"),
        ("nanovlm", "downloads llava-hf/llava-1.5-7b-hf"),
        ("nemo2-b200-llama3-70b-lora", "reads /fsx/nemo; made by: env NEMO_HOME=/fsx/nemo python3 -c "),
    ],
)
def test_what_is_made_or_downloaded_is_what_the_job_reads(name: str, says: str) -> None:
    spec = {**written_for(name), "storage": [{"mount": "/fsx", "lustre": {}}]}
    text = str(inputs_of(resolve_job(loaded(spec), "j").require()))
    assert says in text, text
    assert ("HF_TOKEN" in text) == ("meta-llama/" in text)


def test_a_path_with_a_space_is_one_path_and_a_checkpoint_is_not_read() -> None:
    spec = {**written_for("megatron-lm-llama2-7b"), "storage": [{"mount": "/fsx", "lustre": {}}]}
    own = {"data": "/fsx/my data/c4_text_document", "checkpoint": {"to": "/fsx/ck pt", "steps": 10}}
    spec["jobs"] = [{**spec["jobs"][0], **own}]
    inputs = inputs_of(resolve_job(loaded(spec), "j").require())
    assert inputs.paths == ("/fsx/my data/c4_text_document", "/fsx/tokenizers/llama2-7b")
    assert "--output-prefix '/fsx/my data/c4' " in inputs.prepare


def test_the_command_that_prepares_a_job_is_shown() -> None:
    name, assets = "torchtitan-qwen3-30b-a3b", "/fsx/assets/Qwen3-30B-A3B"
    spec = {**written_for(name), "storage": [{"mount": "/fsx", "lustre": {}}]}
    inputs = inputs_of(resolve_job(loaded(spec), "j").require())
    download = "hf download Qwen/Qwen3-30B-A3B --include 'tokenizer*' --local-dir "
    assert str(inputs) == f"reads {assets}, /fsx/data/c4; made by: {download}{assets}"
    shown = CliRunner().invoke(cli, ["recipes", "show", name], catch_exceptions=False)
    assert f"# Prepare: {download}{{shared}}/assets/Qwen3-30B-A3B\n" in shown.output


def written_for(name: str) -> dict[str, Any]:
    """A cluster as large as the recipe was written for, by its words on hardware; this machine for a debug size."""
    job = {"name": "j", "recipe": name}
    if name.endswith("-debug"):
        return {"name": "t", "platform": "local", "queues": [{"name": "train", "nodes": 1, "cpus": 1}], "jobs": [job]}
    words = recipe(name).hardware
    nodes = re.match(r"(\d+) ", words)
    assert nodes is not None, words
    instance = next((kind for word, kind in MACHINES.items() if word in words), "")
    queue = {"name": "train", "instance": instance, "count": int(nodes[1])}
    return {"name": "t", "platform": "parallelcluster", "queues": [queue], "jobs": [job]}


@pytest.mark.parametrize(
    ("platform", "more"),
    [("parallelcluster", ["--host", "head"]), ("hyperpod", ["--host", "head"]), ("eks", []), ("batch", [])],
)
def test_torchtitan_starts_with_its_file_under_every_scheduler(
    platform: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINWRIGHT_HOME", str(tmp_path / "home"))
    spec = {
        "name": "c", "platform": platform, "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 4}],
        "storage": [{"mount": "/fsx", "lustre": {}}],
        "jobs": [{"name": "j", "recipe": "torchtitan-llama3.1-8b", "container": "example.com/t:1", "steps": 77,
                  "optimizer": {"warmup": 7}, "checkpoint": {"steps": 11}}],
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    words = ["submit", str(tmp_path / "spec.yaml"), *more, "--dry-run", "--json"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    [(path, text)] = shown["files"].items()
    assert path in shown["script"]
    values = tomllib.loads(text)
    assert values["training"]["steps"] == 77
    assert values["parallelism"]["data_parallel_shard_degree"] == 32
    assert values["checkpoint"]["interval"] == 11
    if platform == "batch":  # no file system is written to from here: the node's command does it
        command = json.loads(shown["script"])["nodeProperties"]["nodeRangeProperties"][0]["container"]["command"][2]
        words = shlex.split(command)
        files = json.loads(zlib.decompress(base64.b85decode(words[words.index("-c") + 2])))
        assert files == {path: text}


def test_what_the_framework_cannot_say_is_refused() -> None:
    job = {"recipe": "torchtitan-llama3.1-8b", "checkpoint": {"every": "15min"}, "model": "falcon-7b", "sequence": 2048}
    problems = {p.path[2:]: p.what for p in resolution(job, 8, "p5.48xlarge").problems}
    assert problems == {
        ("checkpoint", "every"): "torchtitan has no option for `checkpoint.every`",
        ("model",): "torchtitan has no word for model 'falcon-7b'",
    }


def test_a_batch_that_its_ranks_cannot_share_is_refused() -> None:
    job = {"recipe": "torchtitan-llama3.1-8b", "batch": {"sequences": 12}}
    [problem] = resolution(job, 8, "p5.48xlarge").problems
    assert (problem.code, problem.what) == ("JOB003", "12 sequences per step cannot be shared by 8 data ranks")


def test_a_pipeline_is_counted_by_the_frameworks_rules() -> None:
    job = resolved({"recipe": "torchtitan-llama3.1-8b", "parallel": {"pp": 4, "shard": 2}}, 8, "p5.48xlarge")
    values = tomllib.loads(framework_launch(job, FOLDER, FOLDER).files["torchtitan.toml"])
    assert values["training"]["local_batch_size"] == 256  # 512 sequences over two data ranks
    assert "global_batch_size" not in values["training"]
    assert values["parallelism"]["pipeline_parallel_microbatch_size"] == 1


def test_the_recipe_and_the_job_go_over_the_framework(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "title: mine\nmodel: llama3.1-8b\nsteps: 1000\n"
        "trainer: {framework: torchtitan, file: {compile.enable: true, checkpoint.async_mode: null}}\n"
    )
    job = resolved({"recipe": str(tmp_path / "mine.yaml"), "args": ["--debug.seed", "1"]}, 8, "p5.48xlarge")
    launch = framework_launch(job, FOLDER, FOLDER)
    values = tomllib.loads(launch.files["torchtitan.toml"])
    assert values["compile"] == {"enable": True}
    assert "async_mode" not in values["checkpoint"]
    assert launch.command[-2:] == ("--debug.seed", "1")


def test_options_as_words() -> None:
    assert option_words("--seq", 5) == ["--seq", "5"]
    assert option_words("--fast", True) == ["--fast"]
    assert option_words("--fast", False) == []
    assert option_words("--mesh=", [1, 2]) == ["--mesh=[1,2]"]
    assert option_words("a.b", True) == ["a.b=true"]
    assert option_words("--blend", ["a", "b"]) == ["--blend", "a", "b"]
    assert quote_but_variables("--rank=$NODE_RANK;x y") == "--rank=\"$NODE_RANK\"';x y'"


def test_files_are_what_their_ending_says() -> None:
    keys = {"a.b": 1, "a.c.d": ["x", True], "e": "t\"'\n"}
    assert tomllib.loads(config_text("x.toml", keys)) == json.loads(config_text("x.json", keys)) == nested(keys)
    assert yaml.safe_load(config_text("x.yaml", keys)) == nested(keys)


# Frameworks that nobody packages for a current PyTorch or JAX.
WITHOUT_IMAGE = {"fairseq", "paxml", "bionemo1"}


@pytest.mark.parametrize("name", frameworks())
def test_its_image_and_its_log_are_known(name: str) -> None:
    known = framework(name)
    if name not in WITHOUT_IMAGE:
        family = family_of(known.image or name)
        assert family.name == known.family
    logs = {one.name for one in formats()} | {other for one in formats() for other in one.variants}
    assert known.log is None or known.log in logs


def test_names_are_unique() -> None:
    assert len(set(all_names())) == len(all_names())


MESHES = [(4, {}), (4, {"replicate": 2}), (4, {"tp": 2, "pp": 2}), (1, {})]  # nodes, and what a job asks for


@pytest.mark.parametrize(("nodes", "plan"), MESHES)
def test_maxtext_spreads_its_mesh_over_all_nodes(nodes: int, plan: dict[str, int]) -> None:
    """MaxText takes a node for a slice: its DCN axes multiply to the nodes, its ICI axes to the GPUs of one, and one of
    each may be left open by -1."""
    job = resolved({"recipe": "maxtext-llama3.1-8b", **({"parallel": plan} if plan else {})}, 8 * nodes, "p5.48xlarge")
    given = dict(word.split("=", 1) for word in framework_launch(job, FOLDER, FOLDER).options)
    for network, total in (("dcn", nodes), ("ici", 8)):
        axes = [int(value) for key, value in given.items() if re.fullmatch(rf"{network}_\w+_parallelism", key)]
        stated = math.prod(axis for axis in axes if axis != -1)
        assert axes.count(-1) == 1, network
        assert total % stated == 0, network
    assert given["dcn_fsdp_parallelism"] == "-1"  # what is sharded is sharded over the nodes too


@pytest.mark.parametrize(
    "name", ["nemo2-h100-llama3-8b", "bionemo-esm2-650m", "megatron-bridge-llama3-8b", "maxtext-llama3.1-8b"]
)
def test_the_stock_image_of_a_vendor_is_noted(name: str, tmp_path: Path) -> None:
    """Its EFA libraries and plugin are none of a version set, and nothing said so."""
    spec = {**written_for(name), "region": "us-east-2"}
    (tmp_path / "trainwright.yaml").write_text(yaml.safe_dump(spec))
    [note] = [one for one in check([str(tmp_path)]).findings if one.code == "SPC014"]
    assert (note.level, recipe(name).trainer.image in note.message) == ("info", True)
    assert f"trainwright image container --for {name}" in note.fix
    spec["jobs"] = [{**spec["jobs"][0], "container": "example.com/ours:1"}]
    (tmp_path / "trainwright.yaml").write_text(yaml.safe_dump(spec))
    assert [one for one in check([str(tmp_path)]).findings if one.code == "SPC014"] == []
