"""The check that `plan`, `up`, `submit` and `predict` run first: the rules of `trainwright check` over the spec as it
was loaded, flags included. What they would refuse is refused here, all of it at once, each at its line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.check.engine import Result, check_file
from trainwright.check.model import File
from trainwright.check.readers.spec import add
from trainwright.errors import UserError

if TYPE_CHECKING:
    from trainwright.spec.load import LoadedSpec


class CheckFailed(UserError):
    """A spec with errors; `result` has every finding."""

    status = 1

    def __init__(self, result: Result) -> None:
        errors = [finding for finding in result.findings if finding.level == "error"]
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(first.message + more, where=first.span.at(first.file), fix=first.fix)
        self.result = result


def check_loaded(loaded: LoadedSpec, scheduler: str = "", facts: dict[str, Any] | None = None) -> Result:
    """Every finding about a loaded spec. `scheduler`: another than the platform's, such as `process`. `facts`: what
    answers the rules that ask AWS, under `aws`."""
    path = Path(loaded.path)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    file = File(loaded.path, text, "spec", [loaded.node])
    add(file, loaded, scheduler)
    return check_file(file, facts)


def require_clean(loaded: LoadedSpec, scheduler: str = "", facts: dict[str, Any] | None = None) -> Result:
    """The findings of a spec without errors; a CheckFailed with all of them where there are any."""
    result = check_loaded(loaded, scheduler, facts)
    if result.worst() == "error":
        raise CheckFailed(result)
    return result
