"""Checks many files fast: results of unchanged files come from a cache, the rest is spread over processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwright.check.config import Config
from trainwright.check.engine import Result, RulePlan, Selection, check_one
from trainwright.check.walk import files
from trainwright.errors import UserError

if TYPE_CHECKING:
    from trainwright.check.cache import Cache

_CHUNK = 64
_WORTH_PROCESSES = 200  # files: below, starting the processes costs more than it gives


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run, apart from which rules."""

    jobs: int = 1  # processes; 0: one per CPU
    cache: bool = False
    skip_unknown: bool = False  # named files of other kinds are no error, for hooks that pass every changed file


def run(
    paths: Sequence[str], selection: Selection, facts: dict[str, object], config: Config, options: RunOptions
) -> Result:
    """Like `engine.check`, with cache and processes."""
    plan = RulePlan.of(selection, facts, config)
    result = plan.result()
    cache = _cache(plan) if options.cache and not facts else None
    waiting = []
    for path, named in files(paths, config):
        known = cache.get(path, named) if cache is not None else None
        if known is not None:
            result.add(known)
        elif named:
            result.add(_named(path, plan, options, cache))
        else:
            waiting.append(path)
    for path, one in _checked(waiting, plan, options.jobs):
        result.add(one)
        if cache is not None:
            cache.put(path, False, one)
    if cache is not None:
        cache.save()
    result.sort()
    return result


def _cache(plan: RulePlan) -> Cache:
    from trainwright.check.cache import Cache

    return Cache.open(plan)


def _named(path: str, plan: RulePlan, options: RunOptions, cache: Cache | None) -> Result:
    if options.skip_unknown and plan.config.excludes(path):
        return Result()
    try:
        result = check_one(path, True, plan)
    except UserError:
        if options.skip_unknown:
            return Result()
        raise
    if cache is not None:
        cache.put(path, True, result)
    return result


def _checked(paths: list[str], plan: RulePlan, jobs: int) -> list[tuple[str, Result]]:
    count = jobs or len(os.sched_getaffinity(0))
    if count < 2 or len(paths) < _WORTH_PROCESSES or plan.facts:
        return [(path, check_one(path, False, plan)) for path in paths]
    from concurrent.futures import ProcessPoolExecutor

    chunks = [paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK)]
    with ProcessPoolExecutor(count, initializer=_start, initargs=(plan.selection, plan.config)) as pool:
        return [pair for pairs in pool.map(_check_chunk, chunks) for pair in pairs]


_PLAN: list[RulePlan] = []  # of this process; rules themselves are not sent between processes


def _start(selection: Selection, config: Config) -> None:
    _PLAN[:] = [RulePlan.of(selection, {}, config)]


def _check_chunk(paths: list[str]) -> list[tuple[str, Result]]:
    return [(path, check_one(path, False, _PLAN[0])) for path in paths]
