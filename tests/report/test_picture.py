"""The picture of a cluster: valid SVG, everything inside the page, every queue and file system in it, no script."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trainwright.platforms.plan.tree import make_plan
from trainwright.report.picture import WIDTH, picture
from trainwright.spec.load import load

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_everything_is_inside_and_nothing_is_missing(example: Path) -> None:
    plan = make_plan(load(example))
    text = picture(plan)
    root = ElementTree.fromstring(text)
    height = float(root.attrib["viewBox"].split()[3])
    for box in root.iter(f"{SVG}rect"):
        x, y = float(box.attrib.get("x", 0)), float(box.attrib.get("y", 0))
        assert x + float(box.attrib["width"]) <= WIDTH
        assert y + float(box.attrib["height"]) <= height
    words = " ".join(node.text or "" for node in root.iter(f"{SVG}text"))
    assert all(f"queue {queue.name}" in words for queue in plan.spec.queues)
    assert all(item.mount in words for item in plan.spec.storage)
    assert "<script" not in text
    assert not re.search(r"(?:href|src|url)\s*[=(]", text)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_texts_stay_in_their_boxes(example: Path) -> None:
    """By the width of a wide sans-serif, 0.62 of the size a letter."""
    root = ElementTree.fromstring(picture(make_plan(load(example))))
    for node in root.iter(f"{SVG}text"):
        width = len(node.text or "") * float(node.attrib["font-size"]) * 0.62
        left = float(node.attrib["x"]) - (width if node.attrib.get("text-anchor") == "end" else 0)
        assert left >= 0
        assert left + width <= WIDTH


def test_names_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text("name: plain\nplatform: local\nqueues: [{name: train, nodes: 2}]\n")
    loaded = load(path)
    odd = dataclasses.replace(loaded, spec=loaded.spec.model_copy(update={"name": "<b>&"}))  # validation refuses it
    root = ElementTree.fromstring(picture(make_plan(odd)))
    assert "<b>&" in [node.text for node in root.iter(f"{SVG}text")]
