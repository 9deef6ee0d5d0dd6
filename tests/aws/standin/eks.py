"""EKS of the stand-in: clusters, node groups and add-ons that take their time and refuse what EKS refuses, with the
network interfaces and the security group that EKS makes by itself and sometimes forgets; and a small Kubernetes on each
cluster, as far as `kubectl` and `helm` of standin/programs.py look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from standin.cluster_resources import terminate
from standin.resources import Made, Place, _register, recorded
from trainwright.catalog.instances import instance

IMAGE = "ami-12c6146b"
ON_NODES = ("coredns", "metrics-server")  # deployments: not ready before there is a node


class EksError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


@dataclass
class Group:
    name: str
    least: int
    most: int
    kind: str
    nodes: list[str] = field(default_factory=list)


@dataclass
class Cluster:
    name: str
    version: str
    subnets: list[str]
    security_group: str
    tags: dict[str, str]
    interfaces: list[str] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    addons: list[str] = field(default_factory=list)
    identities: list[tuple[str, str]] = field(default_factory=list)
    access: list[str] = field(default_factory=list)  # principals with an entry
    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)  # kind, namespace, name
    releases: dict[str, dict[str, Any]] = field(default_factory=dict)
    status: str = "ACTIVE"

    @property
    def nodes(self) -> list[str]:
        return [node for group in self.groups.values() for node in group.nodes]


class Eks:
    """One region's."""

    def __init__(self) -> None:
        self.clusters: dict[str, Cluster] = {}

    def find(self, name: str) -> Cluster:
        if name not in self.clusters:
            raise EksError("ResourceNotFoundException", f"No cluster found for name: {name}.")
        return self.clusters[name]


def _cluster(props: dict[str, Any], at: Place) -> Made:
    eks, ec2, name = at.engine.eks, at.client("ec2"), props["Name"]
    if name in eks.clusters:
        raise EksError("ResourceInUseException", f"Cluster already exists with name: {name}")
    subnets = props["ResourcesVpcConfig"]["SubnetIds"]
    rows = ec2.describe_subnets(SubnetIds=subnets)["Subnets"]
    if len({row["AvailabilityZone"] for row in rows}) < 2:
        raise EksError("InvalidParameterException", "Subnets specified must be in at least two different AZs")
    tags = [{"Key": f"kubernetes.io/cluster/{name}", "Value": "owned"}]
    group = ec2.create_security_group(
        GroupName=f"eks-cluster-sg-{name}-{at.unique[-12:]}", Description="EKS created security group",
        VpcId=rows[0]["VpcId"], TagSpecifications=[{"ResourceType": "security-group", "Tags": tags}],
    )["GroupId"]  # fmt: skip
    cluster = Cluster(name, str(props.get("Version", "")), subnets, group, dict(at.tags))
    cluster.interfaces = [
        ec2.create_network_interface(SubnetId=subnet, Groups=[group], Description=f"Amazon EKS {name}")[
            "NetworkInterface"
        ]["NetworkInterfaceId"]
        for subnet in subnets[:2]
    ]
    eks.clusters[name] = cluster
    return name, {"ClusterSecurityGroupId": group, "Arn": f"arn:aws:eks:{at.region}:{at.account}:cluster/{name}"}


def _drop_cluster(physical: str, props: dict[str, Any], at: Place) -> None:
    eks, ec2 = at.engine.eks, at.client("ec2")
    if physical not in eks.clusters:
        return
    cluster = eks.clusters[physical]
    if cluster.groups:
        raise EksError("ResourceInUseException", f"Cluster has nodegroups attached: {', '.join(cluster.groups)}")
    for interface in cluster.interfaces:
        ec2.delete_network_interface(NetworkInterfaceId=interface)
    users = ec2.describe_network_interfaces(Filters=[{"Name": "group-id", "Values": [cluster.security_group]}])
    if not users["NetworkInterfaces"]:  # else EKS leaves its group behind
        ec2.delete_security_group(GroupId=cluster.security_group)
    del eks.clusters[physical]


_register(
    "AWS::EKS::Cluster", _cluster, _drop_cluster, seconds=600.0, deletion=300.0,
    mutable=frozenset({"Tags", "Version", "Logging", "ResourcesVpcConfig.PublicAccessCidrs", "UpgradePolicy"}),
)  # fmt: skip


def start_nodes(at: Place, cluster: str, group: Group, count: int, props: dict[str, Any]) -> None:
    if count <= 0:
        return
    card = at.engine.launch_data[props["LaunchTemplate"]["Id"]]["NetworkInterfaces"][0]
    own = {"eks:cluster-name": cluster, "eks:nodegroup-name": group.name}
    tags = [{"Key": key, "Value": value} for key, value in own.items()]
    made = at.client("ec2").run_instances(
        ImageId=IMAGE, InstanceType=group.kind, SubnetId=props["Subnets"][0], SecurityGroupIds=card["Groups"],
        MinCount=count, MaxCount=count, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )["Instances"]  # fmt: skip
    group.nodes += [one["InstanceId"] for one in made]


def _nodegroup(props: dict[str, Any], at: Place) -> Made:
    cluster = at.engine.eks.find(props["ClusterName"])
    name, size = props["NodegroupName"], props["ScalingConfig"]
    if name in cluster.groups:
        raise EksError("ResourceInUseException", f"NodeGroup already exists with name {name}")
    if "vpc-cni" not in cluster.addons:
        raise EksError("NodeCreationFailure", "Unhealthy nodes in the kubernetes cluster: no CNI")
    data = at.engine.launch_data[props["LaunchTemplate"]["Id"]]
    card = data["NetworkInterfaces"][0]
    if cluster.security_group not in card["Groups"]:
        raise EksError("NodeCreationFailure", "Instances failed to join the kubernetes cluster")
    kind = (props.get("InstanceTypes") or [data.get("InstanceType")])[0]
    if len(data["NetworkInterfaces"]) > instance(kind).network_cards:
        raise EksError("InvalidParameterException", f"{kind} has {instance(kind).network_cards} network cards")
    group = Group(name, int(size["MinSize"]), int(size["MaxSize"]), kind)
    count = int(size["DesiredSize"])
    start_nodes(at, cluster.name, group, count, props)
    cluster.groups[name] = group
    return f"{cluster.name}/{name}", {"NodegroupName": name, "ClusterName": cluster.name}


def _drop_nodegroup(physical: str, props: dict[str, Any], at: Place) -> None:
    """The nodes go; one network interface of the CNI is left, as it happens when a node goes while pods start."""
    name, _, group = physical.partition("/")
    cluster = at.engine.eks.clusters.get(name)
    if cluster is None or group not in cluster.groups:
        return
    gone = cluster.groups.pop(group)
    if gone.nodes:
        tags = {"cluster.k8s.amazonaws.com/name": name, "node.k8s.amazonaws.com/instance_id": gone.nodes[0]}
        rows = [{"Key": key, "Value": value} for key, value in tags.items()]
        at.client("ec2").create_network_interface(
            SubnetId=props["Subnets"][0], Groups=[cluster.security_group], Description=f"aws-K8S-{gone.nodes[0]}",
            TagSpecifications=[{"ResourceType": "network-interface", "Tags": rows}],
        )  # fmt: skip
        terminate(at, gone.nodes)


def scale(physical: str, props: dict[str, Any], at: Place) -> None:
    name, _, own = physical.partition("/")
    group, size = at.engine.eks.find(name).groups[own], props["ScalingConfig"]
    group.least, group.most, nodes = int(size["MinSize"]), int(size["MaxSize"]), int(size["DesiredSize"])
    if ended := group.nodes[nodes:]:
        terminate(at, ended)
        del group.nodes[nodes:]
    start_nodes(at, name, group, nodes - len(group.nodes), props)


_register(
    "AWS::EKS::Nodegroup", _nodegroup, _drop_nodegroup, seconds=180.0, deletion=240.0, update=scale,
    mutable=frozenset({"Tags", "ScalingConfig", "Labels", "Taints", "LaunchTemplate", "NodeRepairConfig"}),
)  # fmt: skip


def add_addon(cluster: Cluster, name: str) -> None:
    if name in ON_NODES and not cluster.nodes:
        raise EksError("InsufficientNumberOfReplicas", f"The add-on {name} is unhealthy: it doesn't have a node")
    if name not in cluster.addons:
        cluster.addons.append(name)


def _addon(props: dict[str, Any], at: Place) -> Made:
    cluster, name = at.engine.eks.find(props["ClusterName"]), props["AddonName"]
    if name in cluster.addons:
        raise EksError("ResourceInUseException", f"Addon already exists: {name}")
    add_addon(cluster, name)
    return f"{cluster.name}|{name}", {}


def _drop_addon(physical: str, props: dict[str, Any], at: Place) -> None:
    name, _, addon = physical.partition("|")
    cluster = at.engine.eks.clusters.get(name)
    if cluster is not None and addon in cluster.addons:
        cluster.addons.remove(addon)


_register("AWS::EKS::Addon", _addon, _drop_addon, seconds=60.0)


def _identity(props: dict[str, Any], at: Place) -> Made:
    cluster, pair = at.engine.eks.find(props["ClusterName"]), (props["Namespace"], props["ServiceAccount"])
    if pair in cluster.identities:
        raise EksError("ResourceInUseException", "Association already exists")
    cluster.identities.append(pair)
    return f"{cluster.name}|a-{at.unique[-8:]}", {}


def _drop_identity(physical: str, props: dict[str, Any], at: Place) -> None:
    cluster = at.engine.eks.clusters.get(physical.partition("|")[0])
    pair = (props["Namespace"], props["ServiceAccount"])
    if cluster is not None and pair in cluster.identities:
        cluster.identities.remove(pair)


_register("AWS::EKS::PodIdentityAssociation", _identity, _drop_identity)
recorded("AWS::EKS::AccessEntry")


def install(patched: Callable[[Any, str, Callable[[Any], Any]], None], world: Callable[[], Any]) -> None:
    from moto.core.responses import ActionResult
    from moto.eks import urls
    from moto.eks.exceptions import ResourceNotFoundException
    from moto.eks.responses import EKSResponse

    def action(function: Callable[[Any, Eks], dict[str, Any]]) -> Callable[[Any], Any]:
        def method(self: Any) -> Any:
            try:
                return ActionResult(function(self, world().region(self.region).eks))
            except EksError as error:
                nothing = {"clusterName": None, "nodegroupName": None, "fargateProfileName": None, "addonName": None}
                raise ResourceNotFoundException(**nothing, message=str(error)) from error

        return method

    def describe(self: Any, eks: Eks) -> dict[str, Any]:
        cluster = eks.find(self._get_param("name"))
        return {
            "cluster": {
                "name": cluster.name, "status": cluster.status, "version": cluster.version, "tags": cluster.tags,
                "endpoint": world().kubernetes or "https://0123456789.eks.amazonaws.com",
                "certificateAuthority": {"data": world().authority},
            }
        }  # fmt: skip

    def groups(self: Any, eks: Eks) -> dict[str, Any]:
        return {"nodegroups": list(eks.find(self._get_param("name")).groups)}

    def group(self: Any, eks: Eks) -> dict[str, Any]:
        node_group = eks.find(self._get_param("name")).groups.get(self._get_param("nodegroupName"))
        if node_group is None:
            raise EksError("ResourceNotFoundException", "No node group node_group")
        size = {"minSize": node_group.least, "maxSize": node_group.most, "desiredSize": len(node_group.nodes)}
        return {"nodegroup": {"nodegroupName": node_group.name, "status": "ACTIVE", "scalingConfig": size}}

    def identities(self: Any, eks: Eks) -> dict[str, Any]:
        pairs = eks.find(self._get_param("clusterName") or self._get_param("name")).identities
        asked = self._get_param("namespace"), self._get_param("serviceAccount")
        return {"associations": [{"namespace": n, "serviceAccount": a} for n, a in pairs if (n, a) == asked]}

    def access(self: Any, eks: Eks) -> dict[str, Any]:
        return {"accessEntries": eks.find(self._get_param("clusterName") or self._get_param("name")).access}

    for name, function in {
        "list_access_entries": access,
        "describe_cluster": describe, "list_nodegroups": groups, "describe_nodegroup": group,
        "list_pod_identity_associations": identities,
        "list_clusters": lambda self, eks: {"clusters": list(eks.clusters)},
    }.items():  # fmt: skip
        patched(EKSResponse, name, action(function))
    for path in ("pod-identity-associations", "access-entries"):
        urls.url_paths[f"{{0}}/clusters/(?P<name>[^/]+)/{path}$"] = urls.response.dispatch
