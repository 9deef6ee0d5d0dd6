"""CFN: CloudFormation templates that deploy but do something else than they say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainwright.check import reasons
from trainwright.check.finding import Level
from trainwright.check.model import File
from trainwright.check.readers.cfn_template import Resource, Template, intrinsic, target, template_of
from trainwright.check.registry import Problem, problem, rule
from trainwright.check.rules.cfn_conditions import inverted
from trainwright.check.rules.cfn_user_data import plain_user_data
from trainwright.errors import nearest
from trainwright.spec.source import Node

_REFERRING = re.compile(r"(Id|Ids|Arn|Arns|GroupName|RoleName|Role|Roles|Bucket|Queue|Cluster)$")
_ANY_TEXT = ("Id", "TargetOriginId", "StatementId", "RuleId")  # names of parts, which nothing resolves
_OPTIONAL = re.compile(r"^\W*optional\b|[(\[]optional[)\]]|(?<!not )\boptional\W*$", re.IGNORECASE)
# Of all other templates cfn-lint knows more.
_OF_CLUSTERS = re.compile(
    r"AWS::(FSx|EFS|Batch|EKS|SageMaker|AutoScaling|ParallelCluster|ImageBuilder)::|Custom::\w*[Cc]luster"
    r"|AWS::EC2::(VPC|LaunchTemplate|CapacityReservation|PlacementGroup|SecurityGroup)$"
)
_COMPLETED = 3  # missing names
_ALIKE = 0.75  # of two names, from which one is taken for the other's misspelling
# What makes names that a template does not show: loops and parts of a template engine, macros, modules.
_MADE_LATER = re.compile(r"\{%|<%|Fn::Transform|::MODULE\b")
_SHOWN = re.compile(r"(^|/)(docs?|examples?|samples?)/")  # parts of templates, for a reader
_BY_ARN = re.compile(r"(Arn|Arns|Role|Queue)$")
# Types whose Ref is the ARN, and which have no attribute Arn.
_REF_IS_ARN = re.compile(
    r"AWS::(Batch::(JobQueue|ComputeEnvironment|JobDefinition)|ElasticLoadBalancingV2::\w+|SNS::Topic|SecretsManager::Secret"
    r"|CertificateManager::Certificate|ECS::(Service|TaskDefinition))$"
)
_LOGICAL = re.compile(r"[A-Za-z0-9]+")
_IN_SUB = re.compile(r"\$\{([A-Za-z0-9]+)[.}]")


@rule("CFN001", "error")
def template_means_what_it_says(file: File) -> Iterator[Problem]:
    """A template's references, conditions and parameters must be consistent.

    A property that should refer to another resource holds its logical id as plain text; a condition on a `Create…`
    parameter omits the resource exactly when it is requested (an `!If` whose branches are swapped; a note where the
    condition is negated and the resource is named like the parameter); user data of instances and launch templates is
    plain text without `Fn::Base64`. Templates of clusters (with a network, file systems, launch templates, security
    groups, or nodes of Batch, EKS, SageMaker or an Auto Scaling group) are checked further: a parameter described as
    optional has no default; a parameter is never used (a note); a referenced name must exist in the template, and must
    not be the resource itself: a security group cannot name itself inside its own rules. More than three names that
    nothing defines are a note, because a tool completes such a template before it deploys it, and so are those of
    templates in directories of documentation and examples.

    Why: the stack deploys and flow logs go nowhere, or the placement group is missing where it was requested; an
    unknown name or a circular reference is refused, and so is user data that is not in base64.

    Fix: write `!Ref` or `Fn::Base64`, swap the branches, add `Default: ''`, remove the parameter; put a group's rules
    for itself into separate resources.

    Source: the network and Batch templates of the reference architectures.

    When to ignore: the parameter is kept so that existing deployments need no change.
    """
    template = template_of(file)
    if template is None:
        return
    yield from _plain_references(template, file.text.lstrip().startswith("{"))
    yield from inverted(template)
    yield from _image_paths(template)
    yield from plain_user_data(file, template)
    if any(_OF_CLUSTERS.match(resource.type) for resource in template.resources.values()):
        yield from _parameters(template)
        if not _MADE_LATER.search(file.text):
            yield from _unresolved(template, _SHOWN.search(file.path.replace("\\", "/")) is not None)


def _image_paths(template: Template) -> Iterator[Problem]:
    """An image id that is the path of an SSM parameter."""
    for resource in template.resources.values():
        for node in resource.node.walk():
            image = node.get("ImageId") if node.is_map else None
            value = template.text(image)
            if image is not None and value is not None and value.known and value.value.startswith("/"):
                yield problem(
                    image,
                    f"{resource.id}: {value.value} is the path of an SSM parameter, not an image id",
                    f"write '{{{{resolve:ssm:{value.value}}}}}'"
                    if image.is_scalar and not image.tag
                    else "give the parameter the type AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
                    why=reasons.PATH_AS_IMAGE,
                )


def _plain_references(template: Template, json: bool) -> Iterator[Problem]:
    own_names = {
        node.text
        for resource in template.resources.values()
        for key, node in (resource.properties or resource.node).items()
        if key.endswith("Name") and node.is_scalar and key != "LogGroupName"
    } | {
        node.text
        for resource in template.of("Logs::LogGroup")
        if (node := resource.get("LogGroupName")) is not None and not node.tag
    }
    for resource in template.resources.values():
        if resource.properties is not None:
            yield from _literals(template, resource, resource.properties, own_names, json)


def _literals(template: Template, resource: Resource, node: Node, own_names: set[str], json: bool) -> Iterator[Problem]:
    for key, child in node.items():
        values = list(child.elements()) if child.is_list and not child.tag else [child]
        for value in values:
            if value.is_map:
                if intrinsic(value) is None:
                    yield from _literals(template, resource, value, own_names, json)
            elif _is_plain_id(template, resource, key, value) and value.text not in own_names:
                kind = template.resources[value.text].type
                by_arn = _BY_ARN.search(key) is not None and not _REF_IS_ARN.match(kind)
                call = f"!GetAtt {value.text}.Arn" if by_arn else f"!Ref {value.text}"
                if json:
                    written = f'"Fn::GetAtt": ["{value.text}", "Arn"]' if by_arn else f'"Ref": "{value.text}"'
                    call = f"{{{written}}}"
                yield problem(
                    value,
                    f"{resource.id}.{key}: {value.text!r} is plain text, and also the name of a resource here",
                    f"write {call}",
                    level=None if _resolves(resource) and _fits(key, kind) else "info",
                    why=reasons.PLAIN_TEXT_ID,
                )


def _resolves(resource: Resource) -> bool:
    """Whether CloudFormation hands the property to a service: a program of one's own may look up logical ids."""
    return not resource.type.startswith(("Custom::", "AWS::CloudFormation::"))


def _fits(key: str, kind: str) -> bool:
    """Whether a property takes resources of a type: SubnetIds takes AWS::EC2::Subnet."""
    stem, name = re.sub(r"(Ids?|Arns?|Name|s)$", "", key).lower(), kind.rpartition("::")[2].lower()
    return stem in name or name in stem


def _is_plain_id(template: Template, resource: Resource, key: str, value: Node) -> bool:
    if not value.is_scalar or value.tag or not _REFERRING.search(key) or key in _ANY_TEXT:
        return False
    return value.text in template.resources and value.text != resource.id


def _parameters(template: Template) -> Iterator[Problem]:
    section = template.root.get("Parameters")
    if section is None:
        return
    used = _used(template)
    macros = template.root.get("Transform") is not None
    optional = [name for name, node in template.parameters.items() if _lacks_default(node)]
    if optional:
        what = f"parameter {optional[0]} is" if len(optional) == 1 else f"parameters {', '.join(optional)} are"
        has = "has" if len(optional) == 1 else "have"
        message = f"{what} described as optional and {has} no default"
        yield problem(section.key_span(optional[0]), message, "add Default: ''", level="info", why=reasons.NO_DEFAULT)
    unused = [name for name in template.parameters if name not in used] if not macros else []
    if unused:  # one note per template: a tool may hand the same parameters to all of its templates
        what = f"parameter {unused[0]} is" if len(unused) == 1 else f"parameters {', '.join(unused)} are"
        fix, why = "remove what is not used", reasons.UNUSED_PARAMETER
        yield problem(section.key_span(unused[0]), f"{what} never used", fix, level="info", why=why)


def _lacks_default(parameter: Node) -> bool:
    described = parameter.get("Description")
    return described is not None and bool(_OPTIONAL.search(described.text)) and parameter.get("Default") is None


def _used(template: Template) -> set[str]:
    names: set[str] = set()
    for key, part in template.root.items():
        if key in ("Parameters", "Metadata"):
            continue
        for node in part.walk():
            name = target(node)
            if name is not None:
                names.add(name)
            elif node.is_scalar and "${" in node.text:
                names.update(_IN_SUB.findall(node.text))
    return names


def _unresolved(template: Template, shown: bool) -> Iterator[Problem]:
    """References to what is not in the template, and to the resource that makes them. Macros may add resources."""
    written = template.root.get("Resources")
    names = {key for key, _ in written.items()} if written is not None else set()
    if template.root.get("Transform") is not None or any(name.startswith("Fn::") for name in names):
        return
    known = names | set(template.parameters)
    missing: dict[str, tuple[Node, str]] = {}
    for section in ("Resources", "Outputs"):
        part = template.root.get(section)
        for owner, node in part.items() if part is not None else ():
            own = node.get("Properties") if section == "Resources" else None
            inside = {id(one) for one in own.walk()} if own is not None else set()
            for one, name in [*_references(node), *_dependencies(node)]:
                if name not in known:
                    missing.setdefault(name, (one, owner))
                elif name == owner and id(one) in inside:
                    yield problem(
                        one,
                        f"{owner} refers to itself, a circular dependency that CloudFormation rejects",
                        _unwind(template, owner),
                        why=reasons.CIRCULAR,
                    )
    whole = bool(template.parameters) or template.root.get("AWSTemplateFormatVersion") is not None
    yield from _missing(missing, known, None if whole and not shown else "info")


def _missing(missing: dict[str, tuple[Node, str]], known: set[str], level: Level | None) -> Iterator[Problem]:
    """Names that nothing defines: a name of its own where it resembles one that exists, the others together."""
    strange = {name: place for name, place in missing.items() if not nearest(name, known, _ALIKE)}
    if len(missing) > _COMPLETED:  # a tool adds its own parameters before it deploys this
        strange, level = missing, "info"
    for name, (node, owner) in missing.items():
        if name not in strange:
            what = f"{owner}: {name!r} is not defined in this template"
            fix = f"did you mean {nearest(name, known, _ALIKE)!r}?"
            yield problem(node, what, fix, level=level, why=reasons.UNRESOLVED)
    if strange:
        first, *others = strange
        node, owner = strange[first]
        more = f", and neither {'are' if len(others) > 1 else 'is'} {', '.join(map(repr, others))}" if others else ""
        what = f"{owner}: {first!r} is not defined in this template{more}"
        call = intrinsic(node)
        shell = f"; write ${{!{first}}} for a variable of the shell" if call is not None and call[0] == "Sub" else ""
        fix = f"add it, or correct the name{shell}"
        yield problem(node, what, fix, level=level, why=reasons.UNRESOLVED)  # without a header: part of a template


def _dependencies(node: Node) -> Iterator[tuple[Node, str]]:
    named = node.get("DependsOn")
    for one in named.elements() if named is not None and named.is_list else [named]:
        if one is not None and one.is_scalar and not one.tag and _LOGICAL.fullmatch(one.text):
            yield one, one.text


def _references(node: Node) -> Iterator[tuple[Node, str]]:
    for one in node.walk():
        name = target(one)
        call = intrinsic(one)
        if name is not None and _LOGICAL.fullmatch(name):
            yield one, name
        elif call is not None and call[0] == "Sub":
            given = call[1] if isinstance(call[1], list) else []
            text = given[0].text if given and given[0].is_scalar else call[1]
            own = {key for key, _ in given[1].items()} if len(given) > 1 and given[1].is_map else set()
            if isinstance(text, str):
                yield from ((one, reference) for reference in _IN_SUB.findall(text) if reference not in own)


def _unwind(template: Template, owner: str) -> str:
    resource = template.resources.get(owner)
    if resource is not None and resource.type == "AWS::EC2::SecurityGroup":
        return "move the rule into an AWS::EC2::SecurityGroupIngress or …Egress of its own, with GroupId"
    return "break the circular dependency with a separate resource"
