"""The recipes by name, and which GPUs have them. Free of torch: the control side refuses what a card cannot do."""

from __future__ import annotations

from dataclasses import dataclass

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Recipe:
    scales: str
    multiple: int  # that the widths of a layer must be of; other layers stay in bf16
    oldest: Capability  # compute capability of a GPU
    newest: Capability = (99, 0)

    @property
    def needs(self) -> str:
        low = ".".join(map(str, self.oldest))
        return f"compute capability {low}" + ("" if self.newest == self.oldest else " or newer")


RECIPES = {
    "tensorwise": Recipe("one scale per tensor", 16, (8, 9)),
    "rowwise": Recipe("one scale per row and per column", 16, (8, 9)),
    # cuBLAS has these blocks on Hopper only; later cards have MXFP8 in their place.
    "blockwise": Recipe("1 x 128 blocks of activations, 128 x 128 of weights", 128, (9, 0), (9, 0)),
    "mxfp8": Recipe("1 x 32 blocks with scales of 8 bits", 32, (10, 0)),
}
DEFAULT = "tensorwise"


def lacking(name: str, capability: Capability) -> str:
    """What a GPU of that compute capability lacks for a recipe; empty where it has it."""
    recipe = RECIPES[name]
    return "" if recipe.oldest <= capability <= recipe.newest else recipe.needs


def instead(capability: Capability) -> str:
    """The recipes that such a GPU has, as words for a fix."""
    names = [name for name in RECIPES if not lacking(name, capability)]
    return f"float8 {', '.join(names[:-1])} or {names[-1]}" if names else "precision bf16"
