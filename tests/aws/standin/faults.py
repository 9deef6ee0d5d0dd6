"""Faults on request: throttling, time-outs, server errors, lost answers, bad credentials, and resources that fail. Also
the record of every call, by which tests know what was asked and how often."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

JSON_SERVICES = {
    "fsx", "logs", "secretsmanager", "resource-groups", "resourcegroupstaggingapi", "tagging", "servicequotas",
    "service-quotas", "ssm", "dynamodb", "lambda", "route53resolver",
}  # fmt: skip
ERRORS = {
    "throttle": (400, "Throttling", "Rate exceeded"),
    "500": (500, "InternalFailure", "We encountered an internal error. Please try again."),
    "503": (503, "ServiceUnavailable", "Service is unavailable"),
    "expired": (403, "ExpiredToken", "The security token included in the request is expired"),
    "revoked": (403, "InvalidClientTokenId", "The security token included in the request is invalid."),
    "denied": (403, "AccessDenied", "User is not authorized to perform this action"),
    "skew": (403, "SignatureDoesNotMatch", "Signature expired: 20260101T000000Z is now earlier than 20260101T003000Z"),
}


@dataclass
class Rule:
    """What happens to matching calls: after `skip` of them, `times` get the fault (-1: all)."""

    kind: str
    service: str = "*"
    action: str = "*"
    skip: int = 0
    times: int = 1


@dataclass
class Failure:
    """A resource that cannot be made or deleted."""

    stack: str
    logical: str
    when: str
    reason: str
    times: int = 1


@dataclass
class Faults:
    rules: list[Rule] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    watch: Callable[[int, str, str, str], None] | None = None  # called with the number, service, action, before|after

    def seen(self, service: str, action: str, moment: float, detail: str = "") -> int:
        self.calls.append({"service": service, "action": action, "time": moment, "detail": detail})
        return len(self.calls)

    def fault(self, service: str, action: str) -> str | None:
        """The kind of fault of this call, if any."""
        for rule in self.rules:
            if not (fnmatch.fnmatch(service, rule.service) and fnmatch.fnmatch(action, rule.action)):
                continue
            if rule.skip > 0:
                rule.skip -= 1
            elif rule.times != 0:
                rule.times -= 1
                return rule.kind
        return None

    def resource_failure(self, stack: str, logical: str, when: str) -> str:
        for failure in self.failures:
            if failure.when == when and failure.times != 0 and _matches(failure, stack, logical):
                failure.times -= 1
                return failure.reason
        return ""


def _matches(failure: Failure, stack: str, logical: str) -> bool:
    return fnmatch.fnmatch(stack, failure.stack) and fnmatch.fnmatch(logical, failure.logical)


def error_response(service: str, kind: str) -> tuple[int, dict[str, str], bytes]:
    """The answer of AWS to a call with that fault, in the service's own format."""
    status, code, message = ERRORS[kind]
    if kind == "throttle" and service == "ec2":
        status, code = 503, "RequestLimitExceeded"
    if kind == "throttle" and service in JSON_SERVICES:
        code = "ThrottlingException"
    if kind == "throttle" and service == "s3":
        status, code = 503, "SlowDown"
    if service in JSON_SERVICES:
        import json

        body = json.dumps({"__type": code, "message": message})
        return status, {"content-type": "application/x-amz-json-1.1", "x-amzn-errortype": code}, body.encode()
    error = f"<Code>{code}</Code><Message>{message}</Message>"
    forms = {
        "ec2": f"<Response><Errors><Error>{error}</Error></Errors><RequestID>r</RequestID></Response>",
        "s3": f"<Error>{error}<RequestId>r</RequestId></Error>",
    }
    default = f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>r</RequestId></ErrorResponse>"
    return status, {"content-type": "text/xml"}, forms.get(service, default).encode()
