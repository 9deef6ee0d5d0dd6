"""Outputs that stand for those of a plan's deployed stacks."""

from __future__ import annotations

from trainwright.platforms.plan.tree import ClusterPlan
from trainwright.stacks.library import template

OUTPUTS = {
    "DnsName": "fs-0a1b2c3d4e5f67890.fsx.us-east-2.amazonaws.com", "MountName": "fzbvxbev", "BucketName": "the-bucket",
    "Uri": "db.cluster-x.us-east-2.rds.amazonaws.com:3306", "UserName": "clusteradmin",
    "PasswordSecretArn": "arn:aws:secretsmanager:us-east-2:111122223333:secret:db-AbCdEf",
    "SecurityGroup": "sg-0a0a0a0a0a0a0a0a0", "ClientSecurityGroup": "sg-0c0c0c0c0c0c0c0c0",
    "PrivateSubnet": "subnet-0a0a0a0a0a0a0a0a0", "RoleArn": "arn:aws:iam::111122223333:role/nodes",
    "ControllerRoleArn": "arn:aws:iam::111122223333:role/controller",
}  # fmt: skip


def outputs_of(planned: ClusterPlan) -> dict[str, dict[str, str]]:
    return {
        stack.key: {name: OUTPUTS.get(name, "x") for name in template(stack.template).outputs}
        for stack in planned.stacks
    }
