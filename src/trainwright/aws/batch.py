"""AWS Batch: job definitions, submission, states, logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainwright.aws.session import aws_errors, client

CLUSTER_TAG = "trainwright:cluster"  # on everything that is made for a cluster


@dataclass(frozen=True)
class BatchApi:
    """The few calls of AWS Batch that running a job needs."""

    region: str | None = None

    def register(self, definition: dict[str, Any]) -> str:
        """The ARN of a new revision of the job definition."""
        with aws_errors(f"job definition {definition['jobDefinitionName']}"):
            return str(client("batch", self.region).register_job_definition(**definition)["jobDefinitionArn"])

    def submit(self, name: str, queue: str, definition: str, after: str = "") -> str:
        more: dict[str, Any] = {"dependsOn": [{"jobId": after}]} if after else {}
        batch = client("batch", self.region)
        with aws_errors(f"job {name}"):
            return str(batch.submit_job(jobName=name, jobQueue=queue, jobDefinition=definition, **more)["jobId"])

    def describe(self, job: str) -> dict[str, Any] | None:
        with aws_errors(f"job {job}"):
            jobs = client("batch", self.region).describe_jobs(jobs=[job])["jobs"]
        return dict(jobs[0]) if jobs else None

    def list(self, queue: str, states: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Every job of a queue in one of the states; the API answers one state at a time."""
        pages = client("batch", self.region).get_paginator("list_jobs")
        with aws_errors(f"queue {queue}"):
            for state in states:
                for page in pages.paginate(jobQueue=queue, jobStatus=state):
                    yield from page["jobSummaryList"]

    def terminate(self, job: str, reason: str) -> None:
        with aws_errors(f"job {job}"):
            client("batch", self.region).terminate_job(jobId=job, reason=reason)

    def log(self, stream: str, since: str = "", group: str = "/aws/batch/job") -> tuple[Sequence[str], str]:
        """The lines a container wrote since the last call, and the token to continue from."""
        logs = client("logs", self.region)
        lines: tuple[str, ...] = ()
        token = since
        while True:
            more = {"nextToken": token} if token else {"startFromHead": True}
            with aws_errors(f"log stream {stream}"):
                page = logs.get_log_events(logGroupName=group, logStreamName=stream, **more)
            lines += tuple(event["message"] for event in page["events"])
            if page["nextForwardToken"] == token:
                return lines, token
            token = page["nextForwardToken"]
