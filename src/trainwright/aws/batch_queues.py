"""AWS Batch: compute environments, the job queues in front of them, and the jobs that are still on a queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainwright.aws.batch import CLUSTER_TAG
from trainwright.aws.session import Account, AwsRefused, aws_errors

LIVE = ("SUBMITTED", "PENDING", "RUNNABLE", "STARTING", "RUNNING")


@dataclass(frozen=True)
class BatchPart:
    """A compute environment or a job queue: whether it takes work (`state`), and how it stands (`status`)."""

    name: str
    state: str  # ENABLED, DISABLED
    status: str  # CREATING, UPDATING, DELETING, DELETED, VALID, INVALID
    reason: str = ""

    @property
    def settled(self) -> bool:
        return self.status in ("VALID", "INVALID")


@dataclass(frozen=True)
class BatchJob:
    id: str
    name: str
    state: str


@dataclass(frozen=True)
class BatchQueues:
    """The calls of Batch that making and removing a queue needs."""

    account: Account

    def queue(self, name: str) -> BatchPart | None:
        with aws_errors(f"job queue {name}"):
            rows = self._client.describe_job_queues(jobQueues=[name])["jobQueues"]
        return _part(rows[0], "jobQueueName") if rows else None

    def environment(self, name: str) -> BatchPart | None:
        """By its name or ARN."""
        with aws_errors(f"compute environment {name}"):
            rows = self._client.describe_compute_environments(computeEnvironments=[name])["computeEnvironments"]
        return _part(rows[0], "computeEnvironmentName") if rows else None

    def switch_queue(self, name: str, state: str) -> None:
        """ENABLED or DISABLED. One that changes just now is asked again later."""
        self._update("job queue", name, lambda: self._client.update_job_queue(jobQueue=name, state=state))

    def switch_environment(self, name: str, state: str) -> None:
        client = self._client
        self._update(
            "compute environment",
            name,
            lambda: client.update_compute_environment(computeEnvironment=name, state=state),
        )

    def jobs(self, queue: str) -> list[BatchJob]:
        """The jobs that wait or run; none where the queue is gone, or goes just now."""
        pages = self._client.get_paginator("list_jobs")
        try:
            with aws_errors(f"job queue {queue}"):
                rows = [
                    row
                    for state in LIVE
                    for page in pages.paginate(jobQueue=queue, jobStatus=state)
                    for row in page["jobSummaryList"]
                ]
        except AwsRefused as error:
            if "does not exist" in error.what or "not found" in error.what:
                return []
            raise
        return [BatchJob(row["jobId"], row["jobName"], row["status"]) for row in rows]

    def terminate(self, job: str, reason: str) -> None:
        with aws_errors(f"job {job}"):
            self._client.terminate_job(jobId=job, reason=reason)

    def definitions(self, cluster: str) -> list[str]:
        """The ARNs of the job definitions that `submit` registered for a cluster, by their tag."""
        pages = self._client.get_paginator("describe_job_definitions").paginate(status="ACTIVE")
        with aws_errors("job definitions"):
            rows = [row for page in pages for row in page["jobDefinitions"]]
        return [row["jobDefinitionArn"] for row in rows if (row.get("tags") or {}).get(CLUSTER_TAG) == cluster]

    def deregister(self, definition: str) -> None:
        with aws_errors(f"job definition {definition}"):
            self._client.deregister_job_definition(jobDefinition=definition)

    def _update(self, kind: str, name: str, call: Any) -> None:
        try:
            with aws_errors(f"{kind} {name}"):
                call()
        except AwsRefused as error:
            if "being modified" not in error.what:
                raise

    @property
    def _client(self) -> Any:
        return self.account.client("batch")


def _part(row: dict[str, Any], name: str) -> BatchPart:
    return BatchPart(row[name], row.get("state", ""), row.get("status", ""), row.get("statusReason") or "")
