"""Least-privilege policies of a plan: for the person who builds it, from the calls that its parts make (actions.toml),
and what its nodes may do, read from the cluster file itself."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from trainwright.platforms.iam.roles import StackRoles
from trainwright.platforms.parallelcluster.access import partition_of
from trainwright.platforms.plan.tree import ClusterPlan
from trainwright.spec.model import Spec
from trainwright.stacks.library import template

HYPERPOD_CLUSTER = "AWS::SageMaker::Cluster"
# Template -> role in it -> who has it.
ROLES = {
    "batch": {"NodeRole": "nodes"},
    "role": {"Role": "nodes", "ControllerRole": "controller"},
    "eks-cluster": {"NodeRole": "nodes"},
    "eks-addons": {"JobRole": "jobs"},
}
LARGEST = 6144  # characters of a managed policy, without white space
WITHOUT_REGION = (
    "iam",
    "route53",
    "sts",
    "cloudwatch",
)  # global, or with no region in the request's context everywhere


@dataclass(frozen=True, slots=True)
class Rule:
    """One group of calls, and where they go."""

    by: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    when: str
    why: str


@cache
def rules() -> tuple[Rule, ...]:
    table = tomllib.loads(Path(__file__).with_name("actions.toml").read_text(encoding="utf-8"))
    return tuple(
        Rule(row["by"], tuple(row["actions"]), tuple(row.get("resources", ("*",))), row.get("when", ""),
             row.get("why", ""))
        for row in table["rule"]
    )  # fmt: skip


def features(plan: ClusterPlan) -> frozenset[str]:
    """What of a plan decides whether a rule is needed."""
    spec = plan.spec
    kinds = {item.kind for item in spec.storage}
    capacities = {queue.capacity.kind for queue in spec.queues}
    said = {
        "bucket": bool(plan.scripts),
        "key": spec.head.key is not None,
        "reservation": bool(capacities & {"reservation", "block", "group"}),
        "reservation group": "group" in capacities,
        "placement group": any(queue.placement is True for queue in spec.queues),
        "lustre or openzfs": bool(kinds & {"lustre", "openzfs"}),
        "managed lustre": any(item.lustre is not None and item.lustre.managed for item in spec.storage),
        "ebs": "ebs" in kinds,
        "efs": "efs" in kinds,
        "linked bucket": any(item.bucket for item in spec.storage),
        "database": spec.accounting is not None,
        "directory": spec.directory is not None,
        "head node": spec.platform in ("parallelcluster", "hyperpod"),
        "batch": spec.platform == "batch",
        "eks": spec.platform in ("eks", "hyperpod-eks"),
        "hyperpod": spec.platform in ("hyperpod", "hyperpod-eks"),
        "controller": spec.platform == "hyperpod",
        "training plan": "plan" in capacities,
    }
    return frozenset(name for name, there in said.items() if there)


def needed(plan: ClusterPlan) -> list[Rule]:
    """The rules of this plan: ours, pcluster's, and those of the resources in its stacks."""
    there = features(plan)
    callers = {kind for stack in (*plan.stacks, *plan.own_stacks) for kind in _types(stack.template)} | {"ours"}
    callers |= {"pcluster"} if plan.spec.platform == "parallelcluster" else set()
    callers |= {HYPERPOD_CLUSTER} if "hyperpod" in there else set()  # its template is written with the plan
    return [rule for rule in rules() if rule.by in callers and (not rule.when or rule.when in there)]


def person_policies(plan: ClusterPlan, account: str = "*") -> list[dict[str, Any]]:
    """The policies of the person who runs `up`, `status`, `connect`, `explain` and `down`: as many documents as AWS's
    limit on their size asks for."""
    words = _words(plan.spec, account)
    grants: dict[tuple[str, ...], set[str]] = {}
    for rule in needed(plan):
        places = tuple(place for text in rule.resources for place in _places(text, words, plan.spec))
        grants.setdefault(places, set()).update(rule.actions)
    everywhere = grants.get(("*",), set())
    statements = [
        statement
        for places, actions in grants.items()
        # What is allowed everywhere need not be said again for one place.
        for statement in _statements(places, actions if places == ("*",) else actions - everywhere, words["region"])
    ]
    return list(_documents(statements))


def node_policies(plan: ClusterPlan) -> dict[str, dict[str, Any]]:
    """What the plan lets its nodes do: of a ParallelCluster by head node and queue, beside its own role; of the others
    by the roles of their stacks."""
    if plan.spec.platform != "parallelcluster":
        return _roles(plan)
    cluster = yaml.safe_load(plan.files["cluster.yaml"])
    partition = partition_of(plan.spec.region or "")
    nodes = {"head": cluster["HeadNode"]}
    nodes |= {f"queue {queue['Name']}": queue for queue in cluster["Scheduling"]["SlurmQueues"]}
    return {name: _node(node.get("Iam", {}), partition) for name, node in nodes.items()}


def _roles(plan: ClusterPlan) -> dict[str, dict[str, Any]]:
    """Who -> policies of the roles that nodes and jobs have where our own stacks make them."""
    roles: dict[str, dict[str, Any]] = {}
    for stack in (*plan.stacks, *plan.own_stacks):
        if stack.template == "eks-addons" and "ServiceAccount" not in stack.parameters:
            continue
        for logical, who in ROLES.get(stack.template, {}).items():
            role = StackRoles(stack, plan.spec.region or "").role(logical)
            # HyperPod's nodes run the jobs; the small ones of EKS beside them run controllers.
            roles |= {who if who not in roles else "system nodes": role} if role is not None else {}
    return roles


def _node(iam: Mapping[str, Any], partition: str) -> dict[str, Any]:
    statements = []
    for access in iam.get("S3Access", []):
        bucket = f"arn:{partition}:s3:::{access['BucketName']}"
        places = [f"{bucket}/{access['KeyName']}"] if "KeyName" in access else [bucket, f"{bucket}/*"]
        write = ["s3:PutObject", "s3:DeleteObject"] if access.get("EnableWriteAccess") else []
        statements.append({"Effect": "Allow", "Action": ["s3:Get*", "s3:List*", *write], "Resource": places})
    managed = [policy["Policy"] for policy in iam.get("AdditionalIamPolicies", [])]
    return {"managed": managed, "policy": {"Version": "2012-10-17", "Statement": statements}}


def _types(name: str) -> set[str]:
    resources = yaml.load(template(name).text, _Loader)["Resources"]
    return {resource["Type"] for resource in resources.values()}


class _Loader(yaml.SafeLoader):
    """Reads a template; CloudFormation's own tags mean nothing here."""


_Loader.add_multi_constructor("!", lambda loader, tag, node: None)


def _words(spec: Spec, account: str) -> dict[str, str]:
    region = spec.region or ""
    return {"partition": partition_of(region), "region": region, "account": account, "cluster": spec.name}


def _places(text: str, words: Mapping[str, str], spec: Spec) -> Iterator[str]:
    if "{linked}" not in text:
        yield text.format(**words)
        return
    for item in spec.storage:
        if item.bucket:
            bucket = item.bucket.removeprefix("s3://").split("/")[0]
            yield text.format(**words, linked=f"arn:{words['partition']}:s3:::{bucket}")


def _statements(places: tuple[str, ...], actions: set[str], region: str) -> Iterator[dict[str, Any]]:
    """One statement; two where only a part of the services can be held to a region."""
    if places != ("*",):
        if actions:
            yield {"Effect": "Allow", "Action": sorted(actions), "Resource": list(places)}
        return
    free = {action for action in actions if action.split(":")[0] in WITHOUT_REGION}
    within = {"StringEquals": {"aws:RequestedRegion": region}}
    for group, condition in ((actions - free, {"Condition": within}), (free, {})):
        if group:
            yield {"Effect": "Allow", "Action": sorted(group), "Resource": "*", **condition}


def _documents(statements: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for statement in statements:
        if kept and _size([*kept, statement]) > LARGEST:
            yield _document(kept)
            kept = []
        kept.append(statement)
    if kept:
        yield _document(kept)


def _document(statements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": statements}


def _size(statements: list[dict[str, Any]]) -> int:
    return len(json.dumps(_document(statements), separators=(",", ":")))
