"""CFG: values that are still to be filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.registry import Problem, problem, rule
from trainwright.errors import listed
from trainwright.spec.source import Node, Span

_ID = r"\b(?:acl|ami|cr|eni|fs|fsvol|rtb|sg|subnet|vpc|ws)-"
_LITERAL = re.compile(
    rf"PLACEHOLDER_?\w*|(?<!\w)<[A-Za-z][\w .-]*>|^<[A-Za-z][^<>]*>$|{_ID}[xX]{{3,}}\b|{_ID}([A-Za-z])\1{{4,}}\b"
    rf"|{_ID}x{{2,}}(?:-x+)+|^{_ID}(?:id|ID)$|\bX{{4,}}\b|REMOVE_THIS_LINE\w*"
    r"|\bREPLACE[_-](?:ME|WITH|THIS)\w*|\bCHANGE_?ME\b"
)
_FILTER_NAME = re.compile(rf"{_ID}id")
_REAL_ID = re.compile(rf"{_ID}[0-9a-f]{{8,17}}\b")
_TEMPLATE_NAME = re.compile(r"template|sample|example|\.tpl\b|\.j2\b|\.tmpl\b|\.in$", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|^\$([A-Z][A-Z0-9_]+)$")
_IN_SHELL = re.compile(
    r"PLACEHOLDER_\w+|<(?:your|my|insert|enter|replace)[-_ ][\w -]*>|\b(?:cr|fs|sg|vpc|subnet|ami)-x{4,}\b"
)
_SAID = re.compile(r"\s*(?:echo|printf|usage|log|die)\b", re.IGNORECASE)  # a text for the reader of a terminal
Placeholder = tuple[Span, str, str]  # its place, its text, and the key or variable that it is the value of
# Where `${VAR}` is what envsubst fills in; below these keys a shell does.
_TEMPLATED = {"parallelcluster", "eksctl", "hyperpod", "kubernetes", "spec"}
_LISTED = 6  # names in one message
_SHELL_KEYS = {"args", "command", "env", "jobs", "overrideBootstrapCommand", "preBootstrapCommands"}

# The prefix of an id, and the words that a placeholder for one, or its key, is made of.
_WORDS = {
    "subnet": re.compile(r"subnet", re.IGNORECASE),
    "sg": re.compile(r"security.?group|\bsg\b", re.IGNORECASE),
    "vpc": re.compile(r"vpc(?!config)", re.IGNORECASE),
    "ami": re.compile(r"\bami\b|customami|image.?id", re.IGNORECASE),
    "cr": re.compile(r"reservation|\bcr\b", re.IGNORECASE),
    "fs": re.compile(r"file.?system|\bfs\b", re.IGNORECASE),
}


@rule("CFG001", "error")
def nothing_left_to_fill_in(file: File) -> Iterator[Problem]:
    """No value may still be a placeholder.

    `PLACEHOLDER_SUBNET`, `<your-key>`, `cr-xxxxxxxx`, `XXXX` and `REMOVE_THIS_LINE` are notes to the person who
    deploys; so are `NA` and the prefix of an id with the word id (`cr-id`, `subnet-id`) where they are the whole value
    of any field, `NA` not in CloudFormation and `vpc-id` not as the name of a filter in Terraform. Descriptions, tags,
    labels and annotations do not count. In scripts and Dockerfiles only `PLACEHOLDER_…`, `<your-…>` and ids of x do.
    All placeholders of a file are one finding. `${VAR}` in a cluster file is a template that `envsubst` has to fill in
    first. It is an error where one was forgotten: the file has an id of the same kind elsewhere (another subnet), and
    more ids than placeholders. Everything else is a note: a template or example, or a value that was left out of a file
    for others to read.

    Why: the tool that reads the file takes the placeholder for the value and reports a different error much later:
    `pcluster create-cluster` takes 15 to 20 minutes.

    Fix: write the value, or run the template through `envsubst` and check the result.

    Source: 25 files of the public reference architectures carry one of three placeholder styles; README of
    awsome-distributed-ai (15 to 20 minutes).

    When to ignore: the file is documentation, not to be deployed.
    """
    if file.template:
        return
    variables: dict[str, Span] = {}
    if file.format in ("shell", "sbatch", "dockerfile"):
        placeholders = _in_text(file)
    else:
        placeholders, variables = _in_values(file)
    if not placeholders and not variables:
        return
    template = _is_template(file, placeholders, variables) or (placeholders and _is_explained(file, placeholders[0][0]))
    forgotten = [one for one in placeholders if _is_forgotten(file, one, placeholders)]
    level: Level | None = "info" if template or not forgotten else None
    if placeholders:
        span, first, _ = (forgotten or placeholders)[0]
        message = f"{first!r} is still a placeholder"
        others = list(dict.fromkeys(text for _, text, _ in placeholders if text != first)) + list(variables)
        if others:
            message += f", and so {'are' if len(others) > 1 else 'is'} {listed(others, _LISTED)}"
        yield problem(span, message, "write the value", level=level)
    elif variables and (file.clusters or file.jobs or file.specs):
        count = f"{len(variables)} variables" if len(variables) > 1 else "one variable"
        yield problem(
            next(iter(variables.values())),
            f"this is a template with {count} to fill in: {', '.join(variables)}",
            "run it through envsubst and check the result; rules that need these values report nothing",
            level=level,
        )


def _is_explained(file: File, place: Span) -> bool:
    """Whether a comment on the line or above it asks the reader to replace the value: the file is an example."""
    lines = file.lines[max(place.line - 2, 0) : place.line]
    comments = [lines[-1].partition("#")[2], *(line for line in lines[:-1] if line.lstrip().startswith("#"))]
    return re.search(r"replace|change|update|your|fill|todo|insert", " ".join(comments), re.IGNORECASE) is not None


def _is_forgotten(file: File, one: Placeholder, others: list[Placeholder]) -> bool:
    """Whether the file has a real id of the kind that is missing here."""
    if file.format == "spec":
        return True
    written = file.text
    for other in others:
        written = written.replace(other[1], "")
    kinds = [prefix for prefix, words in _WORDS.items() if words.search(f"{one[1]} {one[2]}")]
    return any(re.search(rf"\b{prefix}-[0-9a-f]{{8,17}}\b", written) for prefix in kinds)


def _is_template(file: File, placeholders: list[Placeholder], variables: dict[str, Span]) -> bool:
    """Whether the file is plainly meant to be filled in: by its name, by variables, or by placeholders for most ids."""
    path = file.path.replace("\\", "/")
    name = path.rpartition("/")[2]
    if (variables and not placeholders) or (file.format != "cloudformation" and _TEMPLATE_NAME.search(name)):
        return True
    if re.search(r"(^|/)examples?/", path):
        return True
    texts = {text for _, text, _ in placeholders} | set(variables)
    real = set(_REAL_ID.findall(file.text))
    if file.format == "spec":
        return len(texts) > 1 and len(texts) > len(real)
    return len(texts) > len(real)  # a file that was filled in has ids, and one of them was forgotten


def _in_values(file: File) -> tuple[list[Placeholder], dict[str, Span]]:
    placeholders: list[Placeholder] = []
    variables: dict[str, Span] = {}
    values: list[tuple[Node, bool, str]] = []
    for root in file.nodes:
        _add_values(root, False, "", values)
    for node, shell, key in values:
        literal = placeholder_in(node)
        if file.format == "terraform" and _FILTER_NAME.fullmatch(literal):
            literal = ""  # the name of a filter: `name = "vpc-id"`
        if file.format == "cloudformation" and literal == "NA":
            literal = ""  # what a condition compares an optional parameter with
        if shell and not _IN_SHELL.search(node.text):
            literal = ""
        if literal:
            placeholders.append((node.span, literal, key))
        elif file.format in _TEMPLATED and not shell and "\n" not in node.text:
            for braced, bare in _VARIABLE.findall(node.text):
                variables.setdefault(braced or bare, node.span)
    return placeholders, variables


# Descriptions of a value and patterns for it are not values; what a stack or module takes and gives is for its user.
_PROSE = {
    "AllowedPattern", "AllowedValues", "AssertDescription", "Conditions", "ConstraintDescription", "Description",
    "GroupDescription", "Metadata", "Outputs", "Parameters", "Tags", "annotations", "labels", "output", "tags",
    "validation", "variable",
}  # fmt: skip


def _add_values(node: Node, shell: bool, name: str, values: list[tuple[Node, bool, str]]) -> None:
    """Add the texts below a node that a tool uses as they are, each with whether a shell will read it and its key."""
    value = node.value
    if isinstance(value, dict):
        for key, child in value.items():
            if key not in _PROSE and key.lower() != "description":
                _add_values(child, shell or key in _SHELL_KEYS, key, values)
    elif isinstance(value, list):
        for child in value:
            _add_values(child, shell, name, values)
    elif isinstance(value, str) and not node.tag:
        values.append((node, shell, name))


def placeholder_in(node: Node) -> str:
    """The placeholder that a value holds, or an empty string."""
    if node.text == "NA":
        return "NA"
    # Long text is a script or a policy, where `<` and X mean other things.
    if len(node.text) > 200 or "\n" in node.text:
        return ""
    match = _LITERAL.search(node.text)
    return match[0] if match else ""


def _in_text(file: File) -> list[Placeholder]:
    placeholders = []
    for number, line in enumerate(file.text.splitlines(), start=1):
        code = line.split(" #", 1)[0]
        if (code.lstrip().startswith("#") and not code.startswith("#SBATCH")) or _SAID.match(code):
            continue
        for match in _IN_SHELL.finditer(code):
            name = code[: match.start()].rpartition("=")[0].split()[-1:]
            placeholders.append((Span(number, match.start() + 1, number, match.end() + 1), match[0], "".join(name)))
    return placeholders
