"""A plan's file as deploy.sh hands it over: with ids of the right form in the place of outputs of stacks."""

from __future__ import annotations

import re

FORMS = {"PrivateSubnet": "subnet-0a1b2c3d", "SecurityGroup": "sg-0a1b2c3d", "FileSystemId": "fs-0123456789abcdef0"}


def as_deployed(text: str) -> str:
    return re.sub(r"stack-output:[\w-]+\.(\w+)", lambda name: FORMS.get(name[1].rstrip("0123456789"), "made"), text)
