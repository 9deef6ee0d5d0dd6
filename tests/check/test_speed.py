"""`check` stays fast: what it takes per file, and the search for near misses that saves most of that."""

from __future__ import annotations

import contextlib
import difflib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from trainwright.catalog.framework_flags import frameworks, options_of
from trainwright.catalog.instances import instance_names
from trainwright.check import examples
from trainwright.check.engine import check
from trainwright.errors import nearest

PATHS = sorted(Path(examples.__file__).parent.glob("*/*.yaml"))


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def parse_in_python() -> None:
    for path in PATHS:
        with contextlib.suppress(yaml.YAMLError):  # a template
            list(yaml.compose_all(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader))


def test_checking_a_file_takes_less_than_twice_as_long_as_parsing_it_in_python() -> None:
    """At twice that time, 10,000 files take 20 s of CPU time: 10 s on two cores. A ratio of CPU times of one process
    does not depend on the machine, nor on what else runs on it."""
    ratios = []
    for _ in range(3):
        ratios.append(cpu_seconds(lambda: check([str(path) for path in PATHS])) / cpu_seconds(parse_in_python))
        if min(ratios) < 2:
            return
    pytest.fail(f"checking took {', '.join(f'{ratio:.1f}' for ratio in ratios)} times as long as parsing")


@pytest.mark.parametrize("word", ["p5.48xlrge", "p4", "g6.e12xlarge", "--micro-batch-sise", "--tensor", "x", ""])
def test_the_nearest_word_is_the_one_of_difflib(word: str) -> None:
    for known in (instance_names(), *(list(options_of(name)) for name in frameworks()[:6])):
        for cutoff in (0.6, 0.85):
            first = difflib.get_close_matches(word, known, n=1, cutoff=cutoff)
            assert nearest(word, known, cutoff) == (first[0] if first else "")


def test_many_findings_of_one_file_take_time_in_proportion_to_their_number(tmp_path: Path) -> None:
    group = """resource "aws_security_group" "g{}" {{
  ingress {{
    from_port = 22
    to_port = 22
    protocol = "tcp"
    cidr_blocks = ["0.0.0.0/0"]
  }}
}}
"""

    def seconds(count: int) -> float:
        path = tmp_path / f"{count}.tf"
        path.write_text("".join(group.format(number) for number in range(count)))
        return cpu_seconds(lambda: check([str(path)]))

    seconds(10)  # loads the rules
    assert seconds(240) < 16 * seconds(30)  # eight times the file; a search of the text for every finding took 50 times
