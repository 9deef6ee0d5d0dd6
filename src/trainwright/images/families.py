"""Which image a recipe runs in: its framework's family, or the family of our own trainer."""

from __future__ import annotations

from trainwright.catalog.families import Family, FrameworkImage, families, family, family_of
from trainwright.errors import UserError
from trainwright.recipes.load import recipe

__all__ = ["Family", "FrameworkImage", "families", "family", "family_of", "image_of_recipe"]

OURS = "trainwright"


def image_of_recipe(name: str) -> tuple[Family, FrameworkImage]:
    """The family and framework of a recipe; a recipe that is only a command states neither."""
    trainer = recipe(name).trainer
    framework = OURS if trainer == "trainwright" else getattr(trainer, "framework", None)
    if framework is None:
        raise UserError(
            f"recipe {name!r} runs a command of its own, and nothing says what it needs installed",
            fix="name the image with --family and --framework",
        )
    holder = family_of(framework)
    return holder, holder.framework(framework)
