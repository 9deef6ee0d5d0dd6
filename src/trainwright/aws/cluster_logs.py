"""What AWS keeps about a cluster that failed: the events of its stacks, nested ones too, and the logs its nodes sent to
CloudWatch. Read-only."""

from __future__ import annotations

from typing import Any

from trainwright.aws.session import aws_errors, client
from trainwright.errors import UserError

STREAMS = ("cfn-init", "cloud-init", "chef-client", "clustermgtd", "slurm_resume", "slurmctld", "system-messages")
MOST_STREAMS = 40
MOST_LINES = 2000  # of a stream, the newest


def stack_texts(name: str, region: str | None = None) -> dict[str, str]:
    """Name -> text: events that failed, oldest first, then the newest lines of the nodes' logs."""
    events = _events(client("cloudformation", region), name)
    return {**events, **_logs(client("logs", region), name)}


def _events(service: Any, name: str) -> dict[str, str]:
    from botocore.exceptions import ClientError

    texts: dict[str, str] = {}
    waiting = [name]
    while waiting and len(texts) < 20:
        stack = waiting.pop(0)
        with aws_errors("cloudformation:DescribeStackEvents"):
            try:
                pages = service.get_paginator("describe_stack_events").paginate(StackName=stack)
                events = [event for page in pages for event in page["StackEvents"]]
            except ClientError as error:
                if "does not exist" not in str(error):
                    raise
                if stack != name:  # a nested stack that is gone: the others still have the cause
                    continue
                raise UserError(
                    f"there is no stack {name!r} in this region", fix="name its region: --region"
                ) from error
        texts[f"events of {stack.rpartition('/')[0].rpartition('/')[2] or stack}"] = "\n".join(
            _line(event) for event in reversed(events)
        )
        nested = {e.get("PhysicalResourceId") for e in events if e["ResourceType"] == "AWS::CloudFormation::Stack"}
        # The first event of a nested stack has no id yet, and one that could not be begun never gets any.
        waiting += sorted(id for id in nested if id and id != events[0]["StackId"])
    return texts


def _line(event: dict[str, Any]) -> str:
    reason = event.get("ResourceStatusReason", "")
    return f"{event['Timestamp']:%Y-%m-%dT%H:%M:%SZ} {event['LogicalResourceId']} {event['ResourceStatus']} {reason}"


def _logs(service: Any, name: str) -> dict[str, str]:
    """The streams of ParallelCluster's log group of that cluster; none where it has none."""
    with aws_errors("logs:DescribeLogGroups"):
        groups = service.describe_log_groups(logGroupNamePrefix=f"/aws/parallelcluster/{name}-")["logGroups"]
        if not groups:
            return {}
        group = max(groups, key=lambda each: each.get("creationTime", 0))["logGroupName"]
        pages = service.get_paginator("describe_log_streams").paginate(logGroupName=group)
        names = [stream["logStreamName"] for page in pages for stream in page["logStreams"]]
        wanted = [stream for stream in names if stream.rpartition(".")[2].startswith(STREAMS)][:MOST_STREAMS]
        return {stream: _newest(service, group, stream) for stream in wanted}


def _newest(service: Any, group: str, stream: str) -> str:
    answer = service.get_log_events(logGroupName=group, logStreamName=stream, limit=MOST_LINES, startFromHead=False)
    return "\n".join(event["message"] for event in answer["events"])
