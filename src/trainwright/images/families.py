"""Which image a recipe runs in: its framework's family, or the family of our own trainer."""

from __future__ import annotations

from trainwright.catalog.families import Family, FrameworkImage, families, family, family_of
from trainwright.errors import UserError
from trainwright.recipes.load import recipe as find_recipe
from trainwright.recipes.model import Foreign

__all__ = ["Family", "FrameworkImage", "choose", "families", "family", "family_of", "image_of_recipe"]

OURS = "trainwright"


def choose(recipe: str | None, family_name: str | None, framework: str | None) -> tuple[Family, FrameworkImage]:
    """The family and framework that a user means: a recipe's, or those named; our trainer's without either."""
    if recipe is not None:
        if family_name or framework:
            raise UserError(
                "--for names the family and the framework already", fix="leave --family and --framework out"
            )
        return image_of_recipe(recipe)
    if family_name is None:
        holder = family_of(framework or OURS)
        return holder, holder.framework(framework or OURS)
    holder = family(family_name)
    return holder, holder.framework(framework or next(iter(holder.frameworks)))


def image_of_recipe(name: str) -> tuple[Family, FrameworkImage]:
    """The family and framework of a recipe; a recipe that is only a command states neither."""
    trainer = find_recipe(name).trainer
    known = trainer.known if isinstance(trainer, Foreign) else None
    framework = OURS if trainer == "trainwright" else (known.image or trainer.framework) if known is not None else None
    if framework is None:
        raise UserError(
            f"recipe {name!r} runs a command of its own, and nothing says what it needs installed",
            fix="name the image with --family and --framework",
        )
    if not any(framework in one.frameworks for one in families().values()):
        raise UserError(
            f"no image of ours holds {framework}: its last version needs packages that no longer install together",
            fix=f"build an image with {known.title if known else framework} {known.version if known else ''} yourself, "
            "and name it with `container:` in the job",
        )
    holder = family_of(framework)
    return holder, holder.framework(framework)
