"""CloudFormation: the stacks around a cluster. A stack that is not there is None; the rest is AWS's own words."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainwright.aws.session import Account, AwsRefused, aws_errors

CLUSTER_TAG = "trainwright:cluster"
PLATFORM_TAG = "trainwright:platform"  # not on stacks of ParallelCluster, the first platform
# States from which a stack can only be deleted: it never came to be, or is half gone.
BROKEN = ("CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "DELETE_FAILED")
NOTHING_CHANGED = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True)
class Stack:
    """One stack as CloudFormation sees it."""

    name: str
    id: str
    status: str
    reason: str
    created: datetime
    parameters: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        return self.status.endswith("_IN_PROGRESS")

    @property
    def usable(self) -> bool:
        return self.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE")


@dataclass(frozen=True)
class StackEvent:
    """One line of a stack's history."""

    time: datetime
    resource: str
    kind: str
    status: str
    reason: str


@dataclass(frozen=True)
class StackChange:
    """What a change set would do to one resource."""

    action: str
    resource: str
    kind: str
    replaces: bool


@dataclass(frozen=True)
class StackApi:
    """The calls of CloudFormation that building and removing a cluster needs."""

    account: Account

    def describe(self, name: str) -> Stack | None:
        """The stack of that name or id, or None. A deleted one is seen only by its id."""
        try:
            with aws_errors(f"stack {name}"):
                (row,) = self._client.describe_stacks(StackName=name)["Stacks"]
        except AwsRefused as error:
            if error.code == "ValidationError" and "does not exist" in error.what:
                return None
            raise
        return _stack(row)

    def of_cluster(self, cluster: str | None = None) -> list[Stack]:
        """Every stack with our tag, oldest first: of one cluster, or of all."""
        with aws_errors("ListStacks"):
            rows = [r for page in self._client.get_paginator("describe_stacks").paginate() for r in page["Stacks"]]
        stacks = [stack for stack in map(_stack, rows) if CLUSTER_TAG in stack.tags]
        wanted = [stack for stack in stacks if cluster is None or stack.tags[CLUSTER_TAG] == cluster]
        return sorted(wanted, key=lambda stack: (stack.created, stack.name))

    def create(self, name: str, template: str, parameters: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Begin to create a stack. One that somebody else began in the same moment is as good."""
        try:
            with aws_errors(f"stack {name}"):
                self._client.create_stack(
                    StackName=name, TemplateBody=template, Parameters=_pairs(parameters), Tags=_tags(tags),
                    Capabilities=["CAPABILITY_IAM"], ClientRequestToken=_token(),
                )  # fmt: skip
        except AwsRefused as error:
            if error.code != "AlreadyExistsException":
                raise

    def delete(self, name: str) -> None:
        with aws_errors(f"stack {name}"):
            self._client.delete_stack(StackName=name, ClientRequestToken=_token())

    def template(self, name: str) -> str:
        with aws_errors(f"stack {name}"):
            body = self._client.get_template(StackName=name, TemplateStage="Original")["TemplateBody"]
        return body if isinstance(body, str) else ""  # a JSON template comes as data; none of ours is one

    def change(
        self, name: str, title: str, template: str, parameters: Mapping[str, str], tags: Mapping[str, str]
    ) -> None:
        """Begin a change set; one of the same title is the same change."""
        try:
            with aws_errors(f"stack {name}"):
                self._client.create_change_set(
                    StackName=name, ChangeSetName=title, TemplateBody=template, Parameters=_pairs(parameters),
                    Tags=_tags(tags), Capabilities=["CAPABILITY_IAM"], ClientToken=_token(),
                )  # fmt: skip
        except AwsRefused as error:
            if error.code != "AlreadyExistsException":
                raise

    def changes(self, name: str, title: str) -> tuple[str, str, list[StackChange]] | None:
        """(status, reason, changes) of a change set, or None where there is none."""
        try:
            with aws_errors(f"stack {name}"):
                row = self._client.describe_change_set(StackName=name, ChangeSetName=title)
        except AwsRefused as error:
            if error.code in ("ChangeSetNotFound", "ChangeSetNotFoundException"):
                return None
            raise
        changes = [_change(one["ResourceChange"]) for one in row.get("Changes", [])]
        return str(row["Status"]), str(row.get("StatusReason") or ""), changes

    def execute(self, name: str, title: str) -> None:
        try:
            with aws_errors(f"stack {name}"):
                self._client.execute_change_set(StackName=name, ChangeSetName=title, ClientRequestToken=_token())
        except AwsRefused as error:
            if "InvalidChangeSetStatus" not in error.code:  # somebody else executed it, or another one
                raise

    def drop_change(self, name: str, title: str) -> None:
        with aws_errors(f"stack {name}"):
            self._client.delete_change_set(StackName=name, ChangeSetName=title)

    def part_states(self, id: str) -> dict[str, str]:
        """The resources of a stack (by its id) with their present state."""
        with aws_errors(f"stack {id}"):
            rows = self._client.describe_stack_resources(StackName=id)["StackResources"]
        return {row["LogicalResourceId"]: row["ResourceStatus"] for row in rows}

    def events(self, name: str) -> Iterator[StackEvent]:
        """The history of a stack, newest first."""
        with aws_errors(f"stack {name}"):
            for page in self._client.get_paginator("describe_stack_events").paginate(StackName=name):
                yield from map(_event, page["StackEvents"])

    @property
    def _client(self) -> Any:
        return self.account.client("cloudformation")


def first_failure(events: Iterator[StackEvent], name: str) -> StackEvent | None:
    """The failure that led to all others: the oldest of the newest attempt, cancelled resources left out. `name`: of
    the stack itself, which fails by its parts; a stack inside it is one of them."""
    oldest: StackEvent | None = None
    for event in events:
        if event.status in ("CREATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "UPDATE_IN_PROGRESS") and (
            event.resource == name and event.reason == "User Initiated"
        ):
            break
        if event.status.endswith("_FAILED") and event.resource != name:
            oldest = oldest if "cancelled" in event.reason else event
    return oldest


def _stack(row: dict[str, Any]) -> Stack:
    return Stack(
        name=row["StackName"],
        id=row["StackId"],
        status=row["StackStatus"],
        reason=row.get("StackStatusReason") or "",
        created=row["CreationTime"],
        parameters={p["ParameterKey"]: p.get("ParameterValue", "") for p in row.get("Parameters", [])},
        outputs={o["OutputKey"]: o["OutputValue"] for o in row.get("Outputs", [])},
        tags={t["Key"]: t["Value"] for t in row.get("Tags", [])},
    )


def _event(row: dict[str, Any]) -> StackEvent:
    return StackEvent(
        row["Timestamp"], row["LogicalResourceId"], row["ResourceType"], row["ResourceStatus"],
        row.get("ResourceStatusReason") or "",
    )  # fmt: skip


def _change(row: dict[str, Any]) -> StackChange:
    replaces = row.get("Replacement") in ("True", "Conditional")
    return StackChange(row["Action"], row["LogicalResourceId"], row["ResourceType"], replaces)


def _pairs(parameters: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _token() -> str:
    """One request, however often botocore sends it."""
    return f"trainwright-{uuid.uuid4()}"
