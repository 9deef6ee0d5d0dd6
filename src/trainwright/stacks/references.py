"""How a file names something that exists only after a stack is deployed: `stack-output:network.PublicSubnet`. Plans are
written with such names, `up` fills them in from the outputs of the deployed stacks."""

from __future__ import annotations

import re
from collections.abc import Mapping

from trainwright.errors import UserError
from trainwright.stacks.library import template

_REFERENCE = re.compile(r"stack-output:(?P<stack>[a-z0-9][a-z0-9-]*)\.(?P<output>[A-Z][A-Za-z0-9]*)")


def reference(stack: str, template_name: str, output: str) -> str:
    """The name of an output of a stack made from a template; an output that the template lacks is a bug of ours."""
    if output not in template(template_name).outputs:
        raise KeyError(f"template {template_name} has no output {output}")
    return f"stack-output:{stack}.{output}"


def references(text: str) -> list[tuple[str, str]]:
    """Every (stack, output) a text names, in order, once."""
    return list(dict.fromkeys((m["stack"], m["output"]) for m in _REFERENCE.finditer(text)))


def fill(text: str, outputs: Mapping[str, Mapping[str, str]]) -> str:
    """The text with every name replaced by the output of the deployed stack."""

    def value(match: re.Match[str]) -> str:
        stack, output = match["stack"], match["output"]
        if output not in outputs.get(stack, {}):
            raise UserError(
                f"the stack {stack!r} has no output {output!r} yet",
                fix=f"deploy stacks/{stack}.yaml first, or name an existing one in the spec",
            )
        return outputs[stack][output]

    return _REFERENCE.sub(value, text)
