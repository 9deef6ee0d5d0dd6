"""The stand-in's own services in the place of moto's: CloudFormation, FSx, capacity reservations, placement groups,
reservation groups, quotas. `install(world)` may be called once in a process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from standin import batch, eks, hyperpod
from standin.fsx import FsxError
from standin.stacks import Region, Stack, StackError
from standin.world import World, inside, is_inside

FSX_QUOTAS = {
    "Lustre Persistent 2 file systems": 100.0,
    "Lustre Persistent 2 file storage capacity": 100800.0,
    "Lustre Scratch file systems": 100.0,
    "Lustre Scratch storage capacity": 100800.0,
    "OpenZFS file systems": 100.0,
}
_worlds: list[World] = []
_replaced: list[tuple[Any, str, Any]] = []  # what moto had: owner, name, value


def world() -> World:
    return _worlds[-1]


def install(made: World) -> None:
    """Make this world the one that moto's services answer from."""
    _worlds.append(made)
    if not _replaced:
        _cloudformation()
        _fsx()
        _ec2()
        _groups_and_quotas()
        _bucket_policies()
        batch.install(_patched, world)
        hyperpod.install(_patched, world)
        eks.install(_patched, world)


def uninstall() -> None:
    """Give moto back what was replaced."""
    _worlds.pop()
    while _replaced:
        owner, name, value = _replaced.pop()
        if value is None:
            delattr(owner, name)
        else:
            setattr(owner, name, value)


def _replace(owner: Any, name: str, value: Any) -> None:
    _replaced.append((owner, name, owner.__dict__.get(name)))
    setattr(owner, name, value)


def _bucket_policies() -> None:
    """moto knows no conditions: it would refuse everybody where a policy refuses connections without TLS."""
    from moto.iam.access_control import PermissionResult
    from moto.s3.models import FakeBucket

    _replace(FakeBucket, "get_permission", lambda *args, **kwargs: PermissionResult.NEUTRAL)


def _patched(owner: Any, name: str, function: Callable[[Any], Any]) -> None:
    def method(self: Any) -> Any:
        with world().lock:
            if not is_inside():  # work that is under way asks too, and cannot be advanced by that
                world().tick()
            with inside():
                return function(self)

    method.__name__ = name
    _replace(owner, name, method)


# CloudFormation


def _cloudformation() -> None:
    from moto.cloudformation.responses import CloudFormationResponse as Response

    _replace(Response, "RESPONSE_KEY_PATH_TO_TRANSFORMER", {})
    actions = {
        "create_stack": _create_stack, "describe_stacks": _describe_stacks, "delete_stack": _delete_stack,
        "update_stack": _update_stack, "list_stacks": _list_stacks, "get_template": _get_template,
        "describe_stack_events": _stack_events, "describe_stack_resources": _stack_resources,
        "list_stack_resources": _list_resources, "describe_stack_resource": _stack_resource,
        "create_change_set": _create_change_set, "describe_change_set": _describe_change_set,
        "execute_change_set": _execute_change_set, "delete_change_set": _delete_change_set,
    }  # fmt: skip
    for name, function in actions.items():
        _patched(Response, name, _translated(function))


def _translated(function: Callable[[Any, Region], Any]) -> Callable[[Any], Any]:
    from moto.cloudformation.exceptions import CloudFormationError
    from moto.core.responses import ActionResult

    from standin.template import TemplateError

    def method(self: Any) -> Any:
        try:
            return ActionResult(function(self, world().region(self.region)))
        except (StackError, TemplateError) as error:
            refused = CloudFormationError(str(error))
            refused.code = getattr(error, "code", "ValidationError")
            raise refused from error

    return method


def _body(self: Any, current: Stack | None = None) -> str:
    if self._get_param("UsePreviousTemplate") and current:
        return current.body
    if self._get_param("TemplateURL"):
        return str(self._get_stack_from_s3_url(self._get_param("TemplateURL")))
    return str(self._get_param("TemplateBody"))


def _given(self: Any, current: Stack | None = None) -> dict[str, str]:
    rows = self._get_param("Parameters", []) or []
    old = current.given if current else {}
    return {
        r["ParameterKey"]: old.get(r["ParameterKey"], "") if r.get("UsePreviousValue") else str(r["ParameterValue"])
        for r in rows
    }


def _tags(self: Any) -> dict[str, str]:
    return {row["Key"]: row["Value"] for row in self._get_param("Tags", []) or []}


def _create_stack(self: Any, region: Region) -> dict[str, Any]:
    rollback = self._get_param("OnFailure", "ROLLBACK") != "DO_NOTHING" and not self._get_bool_param(
        "DisableRollback", False
    )
    token = self._get_param("ClientRequestToken", "")
    stack = region.create(self._get_param("StackName"), _body(self), _given(self), _tags(self), token, rollback)
    return {"StackId": stack.id}


def _describe_stacks(self: Any, region: Region) -> dict[str, Any]:
    name = self._get_param("StackName")
    stacks = [region.find(name)] if name else [s for s in region.stacks.values() if s.deleted is None]
    return {"Stacks": [_stack(region, stack) for stack in stacks]}


def _stack(region: Region, stack: Stack) -> dict[str, Any]:
    when = region.clock.when
    fields: dict[str, Any] = {
        "StackId": stack.id,
        "StackName": stack.name,
        "CreationTime": when(stack.created),
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason or None,
        "Parameters": [{"ParameterKey": k, "ParameterValue": v} for k, v in stack.values.items()],
        "Tags": [{"Key": k, "Value": v} for k, v in stack.tags.items()],
        "Outputs": stack.outputs,
        "Capabilities": ["CAPABILITY_IAM"],
        "DisableRollback": not stack.rollback,
        "EnableTerminationProtection": False,
    }
    if stack.updated:
        fields["LastUpdatedTime"] = when(stack.updated)
    if stack.deleted:
        fields["DeletionTime"] = when(stack.deleted)
    return fields


def _delete_stack(self: Any, region: Region) -> dict[str, Any]:
    region.delete(self._get_param("StackName"))
    return {}


def _update_stack(self: Any, region: Region) -> dict[str, Any]:
    stack = region.find(self._get_param("StackName"))
    region.update(stack, _body(self, stack), _given(self, stack), _tags(self) or stack.tags)
    return {"StackId": stack.id}


def _list_stacks(self: Any, region: Region) -> dict[str, Any]:
    wanted = self._get_param("StackStatusFilter", []) or []
    rows = [_stack(region, stack) for stack in region.stacks.values() if not wanted or stack.status in wanted]
    keys = ("StackId", "StackName", "CreationTime", "StackStatus", "DeletionTime")
    return {"StackSummaries": [{key: row[key] for key in keys if key in row} for row in rows]}


def _get_template(self: Any, region: Region) -> dict[str, Any]:
    return {"TemplateBody": region.find(self._get_param("StackName")).body, "StagesAvailable": ["Original"]}


def _stack_events(self: Any, region: Region) -> dict[str, Any]:
    return {"StackEvents": region.find(self._get_param("StackName")).events}


def _rows(region: Region, stack: Stack) -> list[dict[str, Any]]:
    return [
        {
            "StackId": stack.id,
            "StackName": stack.name,
            "LogicalResourceId": one.logical,
            "PhysicalResourceId": one.physical,
            "ResourceType": one.kind,
            "Timestamp": region.clock.when(one.at),
            "LastUpdatedTimestamp": region.clock.when(one.at),
            "ResourceStatus": one.status,
            **({"ResourceStatusReason": one.reason} if one.reason else {}),
        }
        for one in stack.resources.values()
    ]


def _stack_resources(self: Any, region: Region) -> dict[str, Any]:
    return {"StackResources": _rows(region, region.find(self._get_param("StackName")))}


def _list_resources(self: Any, region: Region) -> dict[str, Any]:
    return {"StackResourceSummaries": _rows(region, region.find(self._get_param("StackName")))}


def _stack_resource(self: Any, region: Region) -> dict[str, Any]:
    logical = self._get_param("LogicalResourceId")
    for row in _rows(region, region.find(self._get_param("StackName"))):
        if row["LogicalResourceId"] == logical:
            return {"StackResourceDetail": row}
    raise StackError("ValidationError", f"Resource {logical} does not exist")


def _create_change_set(self: Any, region: Region) -> dict[str, Any]:
    stack = region.find(self._get_param("StackName"))
    made = region.change_set(
        stack.name, self._get_param("ChangeSetName"), _body(self, stack), _given(self, stack), _tags(self)
    )
    return {"Id": made.id, "StackId": stack.id}


def _describe_change_set(self: Any, region: Region) -> dict[str, Any]:
    stack, made = region.find_change_set(self._get_param("ChangeSetName"), self._get_param("StackName"))
    return {
        "ChangeSetName": made.name,
        "ChangeSetId": made.id,
        "StackId": stack.id,
        "StackName": stack.name,
        "Status": made.status,
        "StatusReason": made.reason or None,
        "ExecutionStatus": made.execution,
        "Changes": made.changes,
    }


def _execute_change_set(self: Any, region: Region) -> dict[str, Any]:
    region.execute(self._get_param("ChangeSetName"), self._get_param("StackName"))
    return {}


def _delete_change_set(self: Any, region: Region) -> dict[str, Any]:
    stack, made = region.find_change_set(self._get_param("ChangeSetName"), self._get_param("StackName"))
    del stack.change_sets[made.name]
    return {}


# FSx


def _fsx() -> None:
    from moto.core.exceptions import JsonRESTError
    from moto.fsx.responses import FSxResponse

    def action(function: Callable[[Any, dict[str, Any]], dict[str, Any]]) -> Callable[[Any], str]:
        def method(self: Any) -> str:
            try:
                return json.dumps(function(world().region(self.region).fsx, json.loads(self.body or "{}")))
            except FsxError as error:
                raise JsonRESTError(error.code, str(error)) from error

        return method

    def file_systems(fsx: Any, asked: dict[str, Any]) -> dict[str, Any]:
        ids = asked.get("FileSystemIds") or list(fsx.systems)
        return {"FileSystems": [fsx.describe(fsx.find(id)) for id in ids]}

    def links(fsx: Any, asked: dict[str, Any]) -> dict[str, Any]:
        ids = asked.get("AssociationIds")
        systems = [v for f in asked.get("Filters", []) if f["Name"] == "file-system-id" for v in f["Values"]]
        rows = [a for a in fsx.associations.values() if not ids or a.id in ids]
        rows = [a for a in rows if not systems or a.file_system in systems]
        return {"Associations": [fsx.describe_link(a) for a in rows]}

    def volumes(fsx: Any, asked: dict[str, Any]) -> dict[str, Any]:
        own = {s.fields["RootVolumeId"]: s for s in fsx.systems.values() if s.kind == "OPENZFS"}
        return {
            "Volumes": [
                {
                    "VolumeId": id, "VolumeType": "OPENZFS", "Lifecycle": fsx.state(own[id]),
                    "FileSystemId": own[id].id, "OpenZFSConfiguration": {"VolumePath": "/fsx"},
                }
                for id in asked.get("VolumeIds") or own if id in own
            ]
        }  # fmt: skip

    def delete(fsx: Any, asked: dict[str, Any]) -> dict[str, Any]:
        system = fsx.delete(asked["FileSystemId"])
        return {"FileSystemId": system.id, "Lifecycle": "DELETING"}

    def unlink(fsx: Any, asked: dict[str, Any]) -> dict[str, Any]:
        return {"AssociationId": fsx.unlink(asked["AssociationId"]).id, "Lifecycle": "DELETING"}

    actions = {
        "create_file_system": lambda fsx, asked: {"FileSystem": fsx.describe(fsx.create(asked))},
        "describe_file_systems": file_systems,
        "delete_file_system": delete,
        "create_data_repository_association": lambda fsx, asked: {"Association": fsx.describe_link(fsx.link(asked))},
        "describe_data_repository_associations": links,
        "delete_data_repository_association": unlink,
        "describe_volumes": volumes,
        "describe_backups": lambda fsx, asked: {"Backups": []},
    }
    for name, function in actions.items():
        _patched(FSxResponse, name, action(function))


# EC2 and its neighbours


def _ec2() -> None:
    from moto.core.responses import ActionResult
    from moto.ec2.exceptions import EC2ClientError
    from moto.ec2.responses import EC2Response

    def describe(self: Any) -> Any:
        rows = world().reservations
        wanted = self._get_param("CapacityReservationIds", []) or list(rows)
        for id in wanted:
            if id not in rows:
                code = "InvalidCapacityReservationId.NotFound"
                raise EC2ClientError(code, f"The capacity reservation '{id}' does not exist")
        return ActionResult(
            {"CapacityReservations": [rows[id] | {"AvailableInstanceCount": free(id)} for id in wanted]}
        )

    def free(id: str) -> int:
        """What no instance that is there uses."""
        row, used = world().reservations[id], 0
        for region in world().regions.values():
            if ids := region.reserved.get(id):
                rows = region.client("ec2").describe_instances(InstanceIds=ids)["Reservations"]
                used += sum(one["State"]["Name"] != "terminated" for each in rows for one in each["Instances"])
        return int(row["AvailableInstanceCount"]) - used

    def create_group(self: Any) -> Any:
        name = self._get_param("GroupName")
        row = {"GroupName": name, "GroupId": f"pg-{len(world().placement_groups):017x}", "State": "available"}
        world().placement_groups[name] = row | {"Strategy": self._get_param("Strategy", "cluster")}
        return ActionResult({"PlacementGroup": world().placement_groups[name]})

    def delete_group(self: Any) -> Any:
        world().placement_groups.pop(self._get_param("GroupName"), None)
        return ActionResult({})

    def groups(self: Any) -> Any:
        names = self._get_param("GroupNames", []) or list(world().placement_groups)
        return ActionResult({"PlacementGroups": [world().placement_groups[n] for n in names]})

    _patched(EC2Response, "describe_capacity_reservations", describe)
    _patched(EC2Response, "create_placement_group", create_group)
    _patched(EC2Response, "delete_placement_group", delete_group)
    _patched(EC2Response, "describe_placement_groups", groups)
    _refuse_groups_in_use(EC2Response)


def _refuse_groups_in_use(response: Any) -> None:
    """EC2 deletes no security group that a network interface uses, and no bucket-like mistakes pass in silence."""
    from moto.ec2.exceptions import DependencyViolationError

    first = response.delete_security_group

    def delete(self: Any) -> Any:
        group = self._get_param("GroupId")
        for interface in self.ec2_backend.get_all_network_interfaces():
            if group in [one.id for one in interface.group_set]:
                raise DependencyViolationError(f"resource {group} has a dependent object")
        return first(self)

    _replace(response, "delete_security_group", delete)


def _groups_and_quotas() -> None:
    from moto.resourcegroups import urls
    from moto.resourcegroups.responses import ResourceGroupsResponse
    from moto.servicequotas.responses import ServiceQuotasResponse

    def members(self: Any) -> str:
        arns = world().group_members.get(self._get_param("Group").rpartition("/")[2], [])
        kind = "AWS::EC2::CapacityReservation"
        return json.dumps({"Resources": [{"Identifier": {"ResourceArn": a, "ResourceType": kind}} for a in arns]})

    def group(self: Any) -> str:
        name = self._get_param("Group").rpartition("/")[2]
        kept = world().group_members.setdefault(name, [])
        for arn in self._get_param("ResourceArns") or []:
            if arn.rpartition("/")[2] not in world().reservations:
                raise ValueError(f"{arn} does not exist")
            if arn not in kept:
                kept.append(arn)
        return json.dumps({"Succeeded": kept, "Failed": [], "Pending": []})

    def configuration(self: Any) -> str:
        name = self._get_param("Group").rpartition("/")[2]
        groups = self.resourcegroups_backend.get_group_configuration(group_name=name)
        return json.dumps({"GroupConfiguration": {"Configuration": groups, "Status": "UPDATE_COMPLETE"}})

    def quota(self: Any) -> str:
        code = self._get_param("QuotaCode")
        value = world().quotas.get(code, 100_000.0)
        service = self._get_param("ServiceCode")
        return json.dumps({"Quota": {"ServiceCode": service, "QuotaCode": code, "QuotaName": code, "Value": value}})

    def quotas(self: Any) -> str:
        """As AWS documents them for FSx; a test may set others by their names."""
        service, rows = self._get_param("ServiceCode"), {**FSX_QUOTAS, **world().fsx_quotas}
        rows = rows if service == "fsx" else {}
        return json.dumps(
            {"Quotas": [{"ServiceCode": service, "QuotaName": name, "Value": value} for name, value in rows.items()]}
        )

    _patched(ServiceQuotasResponse, "list_service_quotas", quotas)
    _patched(ResourceGroupsResponse, "list_group_resources", members)
    _patched(ResourceGroupsResponse, "group_resources", group)
    _patched(ResourceGroupsResponse, "get_group_configuration", configuration)
    _patched(ServiceQuotasResponse, "get_service_quota", quota)
    for path in ("list-group-resources", "group-resources"):
        urls.url_paths[f"{{0}}/{path}$"] = ResourceGroupsResponse.dispatch
