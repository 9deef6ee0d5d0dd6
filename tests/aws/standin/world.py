"""The account of the stand-in: its regions, capacity reservations and placement groups. `install` puts it behind moto's
services; inside a test process the calls of boto3 pass through `gate`."""

from __future__ import annotations

import contextlib
import re
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

from standin.clock import Clock
from standin.faults import Faults, error_response
from standin.stacks import ACCOUNT, Region

_inside = threading.local()
_clients: dict[tuple[str, str], Any] = {}  # making one takes longer than a hundred calls


class World:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.faults = Faults()
        self.regions: dict[str, Region] = {}
        self.reservations: dict[str, dict[str, Any]] = {}
        self.placement_groups: dict[str, dict[str, Any]] = {}
        self.group_members: dict[str, list[str]] = {}
        self.quotas: dict[str, float] = {}
        self.fsx_quotas: dict[str, float] = {}
        self.kubernetes = ""  # where a cluster of EKS says that its API is
        self.authority = "bm8gYXV0aG9yaXR5"
        self.hold_jobs = False  # of Batch: they run until somebody terminates them
        self.lock = threading.RLock()

    def region(self, name: str) -> Region:
        if name not in self.regions:
            self.regions[name] = Region(name, self.clock, lambda service: self.client(service, name), self.faults)
        return self.regions[name]

    def client(self, service: str, region: str) -> Any:
        """A boto3 client that reaches moto in this process, without faults and without being counted."""
        import boto3

        if (service, region) not in _clients:
            made = boto3.Session(aws_access_key_id="inside", aws_secret_access_key="inside", region_name=region).client(
                service, endpoint_url=None
            )
            _clients[service, region] = _Inside(made)
        return _clients[service, region]

    def reserve(self, id: str, instance: str, zone_id: str, count: int, region: str, **more: Any) -> None:
        """A capacity reservation, as somebody made it before."""
        zones = self.client("ec2", region).describe_availability_zones()["AvailabilityZones"]
        names = {zone["ZoneId"]: zone["ZoneName"] for zone in zones}
        self.reservations[id] = {
            "CapacityReservationId": id,
            "CapacityReservationArn": f"arn:aws:ec2:{region}:{ACCOUNT}:capacity-reservation/{id}",
            "InstanceType": instance,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": names[zone_id],
            "AvailabilityZoneId": zone_id,
            "TotalInstanceCount": count,
            "AvailableInstanceCount": count,
            "InstanceMatchCriteria": "targeted",
            "ReservationType": "default",
            "EndDateType": "unlimited",
            "State": "active",
            "Tenancy": "default",
            "OwnerId": ACCOUNT,
        } | more

    def tick(self) -> None:
        for region in self.regions.values():
            region.tick()


class _Inside:
    """A client whose calls are marked as the stand-in's own."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._client, name)
        if not callable(member):
            return member

        def call(*args: Any, **kwargs: Any) -> Any:
            with inside():
                return member(*args, **kwargs)

        return call


def is_inside() -> bool:
    return getattr(_inside, "on", False)


@contextlib.contextmanager
def inside() -> Iterator[None]:
    before = is_inside()
    _inside.on = True
    try:
        yield
    finally:
        _inside.on = before


def _stack_of(request: Any) -> str:
    """The stack that a call is about, by its name."""
    body = request.body if isinstance(request.body, bytes) else str(request.body or "").encode()
    named = re.search(rb"(?:^|&)StackName=([^&]+)", body)
    name = urllib.parse.unquote(named[1].decode()) if named else ""
    return name.split("/")[1] if name.startswith("arn:") else name


def gate(world: World) -> Any:
    """For tests in one process: moto's own hook of botocore, behind a gate that counts calls and injects faults.
    Returns what takes it out again."""
    from botocore.awsrequest import AWSResponse
    from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError
    from moto.core.botocore_stubber import BotocoreStubber, MockRawResponse

    first = BotocoreStubber.__call__

    def handle(stubber: Any, event_name: str, request: Any, **kwargs: Any) -> Any:
        if is_inside():
            return first(stubber, event_name, request)
        _, service, action = event_name.split(".", 2)
        number = world.faults.seen(service, action, world.clock.now(), _stack_of(request))
        if world.faults.watch:
            world.faults.watch(number, service, action, "before")
        kind = world.faults.fault(service, action)
        if kind == "unreachable":
            raise ConnectTimeoutError(endpoint_url=request.url)
        if kind is not None and kind != "lost":
            status, headers, body = error_response(service, kind)
            return AWSResponse(request.url, status, headers, MockRawResponse(body))
        response = first(stubber, event_name, request)
        if kind == "lost":  # it was done, and the answer never came
            raise ReadTimeoutError(endpoint_url=request.url)
        if world.faults.watch:
            world.faults.watch(number, service, action, "after")
        return response

    BotocoreStubber.__call__ = handle

    def remove() -> None:
        BotocoreStubber.__call__ = first

    return remove
