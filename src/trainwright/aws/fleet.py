"""The compute fleet of a ParallelCluster: whether its nodes run, from the table in which ParallelCluster keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from trainwright.aws.session import Account, AwsRefused, aws_errors

TABLE, KEY = "parallelcluster-{}", {"Id": {"S": "COMPUTE_FLEET"}}


@dataclass(frozen=True)
class FleetApi:
    account: Account

    def status(self, cluster: str) -> str:
        """RUNNING, STOPPED, STOP_REQUESTED, PROTECTED...; empty where it cannot be known."""
        try:
            with aws_errors(f"compute fleet of {cluster}"):
                answer = self.account.client("dynamodb").get_item(
                    TableName=TABLE.format(cluster), Key=KEY, ConsistentRead=True
                )
        except AwsRefused:
            return ""
        data = answer.get("Item", {}).get("Data", {}).get("M", {})
        return str(data.get("status", {}).get("S", ""))
