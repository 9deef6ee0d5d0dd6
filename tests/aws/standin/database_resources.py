"""The resource types of a database: made in moto's RDS, with the password that Secrets Manager holds."""

from __future__ import annotations

import re
import uuid
from typing import Any

from standin.resources import Made, Place, _register


def _subnets(props: dict[str, Any], at: Place) -> Made:
    name = at.unique.lower()
    at.client("rds").create_db_subnet_group(
        DBSubnetGroupName=name, DBSubnetGroupDescription=props["DBSubnetGroupDescription"],
        SubnetIds=props["SubnetIds"], Tags=at.tag_list,
    )  # fmt: skip
    return name, {}


_register(
    "AWS::RDS::DBSubnetGroup", _subnets,
    lambda physical, props, at: at.client("rds").delete_db_subnet_group(DBSubnetGroupName=physical),
)  # fmt: skip


def _parameters(props: dict[str, Any], at: Place) -> Made:
    name = at.unique.lower()
    at.client("rds").create_db_cluster_parameter_group(
        DBClusterParameterGroupName=name, DBParameterGroupFamily=props["Family"], Description=props["Description"],
        Tags=at.tag_list,
    )  # fmt: skip
    return name, {}


_register(
    "AWS::RDS::DBClusterParameterGroup", _parameters,
    lambda physical, props, at: at.client("rds").delete_db_cluster_parameter_group(
        DBClusterParameterGroupName=physical
    ),
)  # fmt: skip


def _resolved(text: str, at: Place) -> str:
    """A reference to a secret, as CloudFormation puts its value in."""
    named = re.fullmatch(r"\{\{resolve:secretsmanager:(.+)\}\}", text)
    if not named:
        raise ValueError("the password of a database is no reference to a secret")
    return str(at.client("secretsmanager").get_secret_value(SecretId=named[1])["SecretString"])[:40]


def _protected(value: Any) -> bool:
    return str(value).lower() == "true"


def _database(props: dict[str, Any], at: Place) -> Made:
    name = at.unique.lower()[:63]
    made = at.client("rds").create_db_cluster(
        DBClusterIdentifier=name, Engine=props["Engine"], EngineVersion=props["EngineVersion"],
        MasterUsername=props["MasterUsername"], MasterUserPassword=_resolved(props["MasterUserPassword"], at),
        Port=int(props["Port"]), DBSubnetGroupName=props["DBSubnetGroupName"],
        VpcSecurityGroupIds=props["VpcSecurityGroupIds"], StorageEncrypted=_protected(props["StorageEncrypted"]),
        DeletionProtection=_protected(props.get("DeletionProtection", "false")), Tags=at.tag_list,
    )["DBCluster"]  # fmt: skip
    return name, {"Endpoint.Address": made["Endpoint"], "Endpoint.Port": str(made["Port"])}


def _change_database(physical: str, props: dict[str, Any], at: Place) -> None:
    protected = _protected(props.get("DeletionProtection", "false"))
    at.client("rds").modify_db_cluster(DBClusterIdentifier=physical, DeletionProtection=protected)


def _delete_database(physical: str, props: dict[str, Any], at: Place) -> None:
    """`DeletionPolicy: Snapshot` leaves a last snapshot."""
    if _protected(props.get("DeletionProtection", "false")):
        raise ValueError("Cannot delete protected Cluster, please disable deletion protection and try again.")
    last = f"{physical}-{uuid.uuid4().hex[:8]}"
    at.client("rds").delete_db_cluster(DBClusterIdentifier=physical, FinalDBSnapshotIdentifier=last)


_register("AWS::RDS::DBCluster", _database, _delete_database, seconds=300.0, update=_change_database,
          mutable=frozenset({"Tags", "DeletionProtection", "ServerlessV2ScalingConfiguration"}))  # fmt: skip


def _instance(props: dict[str, Any], at: Place) -> Made:
    name = at.unique.lower()[:63]
    at.client("rds").create_db_instance(
        DBInstanceIdentifier=name, DBInstanceClass=props["DBInstanceClass"], Engine=props["Engine"],
        DBClusterIdentifier=props["DBClusterIdentifier"], Tags=at.tag_list,
        PubliclyAccessible=_protected(props["PubliclyAccessible"]),
    )  # fmt: skip
    return name, {}


_register(
    "AWS::RDS::DBInstance", _instance,
    lambda physical, props, at: at.client("rds").delete_db_instance(
        DBInstanceIdentifier=physical, SkipFinalSnapshot=True
    ),
    seconds=400.0,
)  # fmt: skip
