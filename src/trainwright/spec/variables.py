"""Environment variables of a job: a text, or a reference to a secret. A secret's value is read when the job is
submitted or when it starts; no file of the spec or of the run holds it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from trainwright.spec.words import VARIABLE, Word


def _quoted(value: Any) -> Any:
    """YAML reads `1` and `yes` as a number and a truth value; which text was meant is then no longer known."""
    if isinstance(value, bool):
        raise ValueError("this is a yes or no to YAML: put it in quotes")
    if isinstance(value, int | float):
        raise ValueError(f"{value} is not text: put it in quotes")
    return value


def _variable_name(name: str) -> str:
    if not VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an environment variable: letters, digits and underscores")
    return name


class Secret(BaseModel):
    """Where a secret is kept: a variable of the shell that submits, or a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    env: Annotated[str, AfterValidator(_variable_name)] | None = Field(
        None, description="Variable of the shell that runs `trainwright submit`."
    )
    file: Word | None = Field(
        None, description="File that holds the value: of the nodes on Slurm, of this machine on Kubernetes."
    )

    @model_validator(mode="after")
    def _one_place(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("secret takes one of env and file")
        if self.file is not None and not self.file.startswith(("/", "~/")):
            raise ValueError(f"file {self.file!r}: write the full path, or one that starts with ~/")
        return self


class SecretVariable(BaseModel):
    """The value of a variable that is a secret: `{secret: {env: HF_TOKEN}}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    secret: Secret = Field(description="Where the value is kept: {env: NAME} or {file: PATH}.")


def _kind(value: Any) -> str:
    return "secret" if isinstance(value, dict | SecretVariable) else "text"


VariableValue = Annotated[
    Annotated[str, BeforeValidator(_quoted), Tag("text")] | Annotated[SecretVariable, Tag("secret")],
    Discriminator(_kind),
]


def _variables(value: dict[str, Any]) -> dict[str, Any]:
    for name, text in value.items():
        if isinstance(text, str) and "\0" in text:
            raise ValueError(f"the value of {name} holds a NUL character, which no variable can")
        _variable_name(name)
    return value


Texts = Annotated[dict[str, Annotated[str, BeforeValidator(_quoted)]], AfterValidator(_variables)]
Variables = Annotated[dict[str, VariableValue], AfterValidator(_variables)]
