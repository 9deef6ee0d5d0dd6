"""The classes of images, known by their names: one name has one number in all folders of a run, in its evaluation and
in what continues it. A WebDataset may give numbers without names; those stand for themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainwright.errors import UserError, listed

NOT_NAMED = "does not name its classes: they are taken to be numbered as those of the data"
AS_NUMBERED = "have names, and those of the data are numbers: these are taken to be the same"
SHOWN = 8  # names that a message lists


class Labelled(Protocol):
    """A source of images as far as classes go."""

    where: str
    names: dict[int, str]  # by the source's own label
    numbered: bool  # labels are numbers that the data gives, without names


@dataclass(frozen=True, slots=True)
class ImageClasses:
    """The classes that a run can tell apart."""

    names: tuple[str, ...] = ()  # by number; empty where neither data nor weights have them
    in_data: tuple[str, ...] = ()  # the names that training data has: weights may know more
    numbered: bool = False  # the data has numbers, and they are the classes

    @staticmethod
    def of(sources: Sequence[Labelled]) -> ImageClasses:
        """The classes of training data: the sorted names of all its folders."""
        numbered = [source for source in sources if source.numbered]
        if numbered and len(numbered) < len(sources):
            named = next(source for source in sources if not source.numbered)
            names = listed(named.names.values(), SHOWN)
            raise UserError(
                f"its classes are numbers, and those of {named.where} are names ({names})",
                where=numbered[0].where,
                fix="folders for both, or `.cls` files for both",
            )
        if numbered:
            return ImageClasses(numbered=True)
        return ImageClasses.named(sources)

    @staticmethod
    def named(sources: Sequence[Labelled]) -> ImageClasses:
        """The same where numbers need not be kept: a number is a name, too."""
        names = tuple(sorted({name for source in sources for name in source.names.values()}))
        return ImageClasses(names, names)

    @staticmethod
    def saved(record: Mapping[str, Any]) -> ImageClasses:
        """The classes as a checkpoint keeps them."""
        return ImageClasses(tuple(record["names"]), tuple(record["in_data"]), bool(record["numbered"]))

    def numbers(self, source: Labelled) -> dict[int, int]:
        """The number of each label of a source."""
        if self.numbered and source.numbered:
            return {label: label for label in source.names}
        unknown = self.unknown(source.names.values())
        if unknown:
            has = "numbers for classes" if self.numbered else f"the classes {listed(self.names, SHOWN)}"
            what = f"{classes(unknown)} here, but not in the training data, which has {has}"
            fix = "`.cls` files, or folders that are named by the numbers" if self.numbered else _without(unknown)
            raise UserError(what, where=source.where, fix=fix)
        number = {name: at for at, name in reversed(list(enumerate(self.names)))}  # of equal names the first
        return {label: int(name) if self.numbered else number[name] for label, name in source.names.items()}

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are no class of these."""
        known = set(self.names)
        return [name for name in names if not (name.isdecimal() if self.numbered else name in known)]

    def differences(self, other: ImageClasses) -> str:
        """How the training data of `other` differs from that of these classes; empty where it does not, and where an
        import, which has no data, may have these numbers."""
        if self.numbered != other.numbered and (self.numbered or self.in_data):
            had, has = ("numbers", "names") if self.numbered else ("names", "numbers")
            return f"its classes were {had} and are {has} now"
        new = sorted(set(other.in_data) - set(self.in_data or self.names))
        gone = sorted(set(self.in_data) - set(other.in_data))
        said = [f"{listed(names, SHOWN)} {'is' if len(names) == 1 else 'are'} {how}"
                for names, how in ((new, "new"), (gone, "missing")) if names]  # fmt: skip
        return ", ".join(said)


def classes(names: Sequence[str]) -> str:
    """For a message: the class 'a' is, the classes 'a', 'b' are."""
    quoted = listed([repr(name) for name in names], SHOWN)
    return f"the class {quoted} is" if len(names) == 1 else f"the classes {quoted} are"


def _without(unknown: Sequence[str]) -> str:
    return f"remove {'it' if len(unknown) == 1 else 'them'} there, or add images of {listed(unknown, SHOWN)} to --data"
