"""K8S006 on values that an API server refuses although their types are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from refused_objects import CHANGES, DEPLOYMENT, JOB, POD, TAKEN
from reported import shown

from trainwright.check.finding import Finding

Run = Callable[..., list[Finding]]


@pytest.mark.parametrize(("text", "old", "new", "line"), CHANGES, ids=[new[:30] for _, _, new, _ in CHANGES])
def test_what_is_refused_is_reported(run: Run, text: str, old: str, new: str, line: int) -> None:
    assert text.count(old) >= 1
    assert run("a.yaml", text, "K8S006") == []
    # A file that speaks of no training has notes only.
    findings = run("a.yaml", f"{text.replace(old, new, 1)}# torchrun\n", "K8S006")
    assert shown(findings) == [f"error K8S006 {line}"]


@pytest.mark.parametrize(("text", "old", "new"), TAKEN, ids=[new[:30] for _, _, new in TAKEN])
def test_what_is_taken_is_not(run: Run, text: str, old: str, new: str) -> None:
    assert run("a.yaml", text.replace(old, new, 1), "K8S006") == []


@pytest.mark.parametrize(
    "name", ["JOB_NAME", "job_name", "__job__", "your_job", "'{job}'", "'<job>'", "'%JOB%'", "job_${USER}", "Job-name"]
)
def test_names_that_are_filled_in(run: Run, name: str) -> None:
    assert run("a.yaml", POD.replace("{name: train,", f"{{name: {name},"), "K8S006") == []


@pytest.mark.parametrize(
    ("name", "level"),
    [("train-USER", "info"), ("sweep-USER-LR_VALUE", "info"), ("EXP-1", ""), ("myTrain", "error"), ("Train", "error")],
)
def test_words_of_a_name_that_may_be_filled_in(run: Run, name: str, level: str) -> None:
    findings = run("a.yaml", POD.replace("{name: train,", f"{{name: {name},"), "K8S006")
    assert [f.level for f in findings] == ([level] if level else [])


def test_a_version_of_1_20_does_not_know_indexed_jobs(run: Run) -> None:
    indexed = JOB.replace("  template", "  completionMode: Indexed\n  parallelism: 4\n  template")
    [finding] = run("a.yaml", indexed, "K8S006")
    assert finding.fix == "add completions: 4"


def test_the_kubelet_knows_one_medium_of_memory(run: Run) -> None:
    [finding] = run("a.yaml", POD.replace("{sizeLimit", "{medium: memory, sizeLimit"), "K8S006")
    assert finding.fix == "write Memory"


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Service\nmetadata: {name: train}\nspec: {type: NodePort}\n",
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec: {completionMode: Indexed}\n",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: train}\nspec: {replicas: 3}\n",
    ],
)
def test_a_patch_of_one_key(run: Run, text: str) -> None:
    assert run("a.yaml", text, "K8S006") == []


def test_kustomize_may_add_the_labels(run: Run, tmp_path: Path) -> None:
    without = DEPLOYMENT.replace("  selector: {matchLabels: {app: gpu}}\n", "")
    (tmp_path / "kustomization.yaml").write_text("resources: [a.yaml]\ncommonLabels: {app: gpu}\n")
    assert run("a.yaml", without, "K8S006") == []
