"""Who works on a cluster, and where its nodes look that up."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from trainwright.spec.part import Part, or_defaults
from trainwright.spec.words import Folder, PublicKey, Word


class User(Part):
    """A person with an account on every node, under the same number everywhere."""

    name: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")] = Field(description="POSIX name of the user.")
    uid: int = Field(ge=1001, le=60000, description="Number of the user and of the group of the same name.")
    keys: tuple[PublicKey, ...] = Field((), description="Public ssh keys that may log in as the user.")


class Directory(Part):
    """Users from an LDAP directory. `true` makes a small server with the users of the spec; or name an existing one."""

    uri: Word | None = Field(None, description="ldaps:// address of an existing directory.")
    base: Word | None = Field(None, description="Root of that directory, such as dc=example,dc=org.")
    reader: Word | None = Field(None, description="Account that reads it, such as cn=reader,dc=example,dc=org.")
    secret: Word | None = Field(None, description="ARN of the secret that holds that account's password.")
    ca: Folder | None = Field(None, description="File on the nodes with the certificate that it is trusted by.")

    @model_validator(mode="after")
    def _whole(self) -> Directory:
        given = [self.uri, self.base, self.reader, self.secret]
        if any(given) and not all(given):
            raise ValueError("an existing directory needs uri, base, reader and secret; `directory: true` makes one")
        if self.ca is not None and self.uri is None:
            raise ValueError("ca goes with the uri of an existing directory")
        if self.uri is not None and not self.uri.startswith("ldaps://"):
            raise ValueError("the uri of a directory starts with ldaps://: names and keys travel under TLS")
        return self


DirectoryField = Annotated[
    Directory | None, BeforeValidator(or_defaults, json_schema_input_type=bool | Directory | None)
]
