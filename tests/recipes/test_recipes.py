"""Recipes are data that makes sense: known models, plans that divide, schedules that end, headers that help."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trainwright.cli.main import cli
from trainwright.errors import UserError
from trainwright.recipes.load import all_names, foreign_names, header, names, recipe
from trainwright.spec.mistakes import SpecError
from trainwright.spec.units import format_seconds
from trainwright.train.models.shape import lookup

WANTED = {
    "cpu-ddp", "llama2-7b", "llama2-13b", "llama2-70b", "llama3.1-8b", "llama3.1-70b", "llama3.2-1b", "llama3.2-3b",
    "mathstral-7b", "gpt2-124m", "gpt2-1.5b", "gpt3-1.7b", "gpt3-310.1b", "falcon-7b", "falcon-40b", "mpt-7b",
    "mpt-30b",
}  # fmt: skip


def test_the_promised_recipes_are_there() -> None:
    assert set(names()) >= WANTED


@pytest.mark.parametrize("name", names())
def test_a_recipe_makes_sense(name: str) -> None:
    this = recipe(name)
    assert this.model is not None
    shape = lookup(this.model)
    assert this.sequence <= shape.context
    assert this.optimizer.warmup < this.steps
    for spread in this.parallel.values():
        assert shape.heads % spread.tp == 0
        assert shape.kv_heads % spread.tp == 0 or spread.tp % shape.kv_heads == 0
        assert shape.layers % spread.pp == 0
    comment = header(name)
    assert f"--recipe {name}" in comment
    assert "Needs:" in comment
    assert "Expect:" in comment


@pytest.mark.parametrize("name", [n for n in names() if n != "cpu-ddp"])
def test_every_recipe_has_a_debug_size(name: str) -> None:
    small = recipe(f"{name}-debug")
    full = recipe(name)
    assert small.model == f"{full.model}-debug"
    assert lookup(str(small.model)).family == lookup(str(full.model)).family
    assert small.steps <= 50
    assert small.data.startswith("builtin:")


def test_a_recipe_of_ones_own_works_the_same(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("title: mine\nmodel: gpt2-124m\nsteps: 1k\ncheckpoint: {steps: 100}\n")
    assert recipe(str(path)).steps == 1000
    path.write_text("title: mine\nmodel: gpt2-124m\nsteps: 500\noptimizer: {lr: 6e-4, warmup: 24000}\n")
    with pytest.raises(SpecError, match=r"warmup \(24000\) is not shorter than the run \(500 steps\)"):
        recipe(str(path))
    path.write_text("title: mine\nmodel: gpt2-124m\nsteps: 30\ncheckpoint: {steps: 1000}\n")
    with pytest.raises(SpecError, match="no checkpoint is ever reached"):
        recipe(str(path))
    path.write_text("title: mine\nmodell: gpt2-124m\nsteps: 30\n")
    with pytest.raises(SpecError) as caught:
        recipe(str(path))
    assert (caught.value.mistakes[0].span.line, caught.value.mistakes[0].fix) == (2, "did you mean 'model'?")


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(UserError) as caught:
        recipe("lama3.1-8b")
    assert caught.value.fix == "did you mean 'llama3.1-8b'?"


def test_list_and_show() -> None:
    runner = CliRunner()
    rows = json.loads(runner.invoke(cli, ["recipes", "list", "--json"]).stdout)
    assert {row["name"] for row in rows} == set(all_names())
    shown = runner.invoke(cli, ["recipes", "show", "llama2-7b"]).stdout
    assert "Llama 2 7B" in shown
    assert "warmup: 2000" in shown


@pytest.mark.parametrize("name", [*names(), "llama3.1-70b-debug"])
def test_what_show_prints_is_a_recipe_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(CliRunner().invoke(cli, ["recipes", "show", name]).stdout)
    assert recipe(str(path)) == recipe(name)


def test_what_show_prints_of_another_framework_is_a_recipe_file(tmp_path: Path) -> None:
    for name in foreign_names():
        for size in (name, f"{name}-debug"):
            path = tmp_path / f"{size}.yaml"
            path.write_text(CliRunner().invoke(cli, ["recipes", "show", size]).stdout)
            assert recipe(str(path)) == recipe(size), size


def test_a_recipe_shows_its_times_as_people_write_them() -> None:
    shown = CliRunner().invoke(cli, ["recipes", "show", "llama3.1-8b"]).stdout
    assert "every: 15min" in shown
    assert [format_seconds(s) for s in (90, 900, 7200, 86_400, 0.5)] == ["90s", "15min", "2h", "1d", "0.5s"]


def test_the_list_is_asked_for_by_framework_and_instance() -> None:
    def ask(*words: str) -> Any:
        return CliRunner().invoke(cli, ["recipes", *words])

    assert ask().output == ask("list").output
    for wanted in ("p5", "P5", "p5.48xlarge", "h100"):
        rows = json.loads(ask("list", "--hardware", wanted, "--json").stdout)
        assert rows
        assert all("H100" in row["hardware"] for row in rows)
    wrong = ask("list", "--framework", "megatronlm")
    assert isinstance(wrong.exception, UserError)
    assert "megatron-lm" in str(wrong.exception.fix)
