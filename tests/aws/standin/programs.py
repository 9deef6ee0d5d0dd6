"""kubectl, helm and eksctl for tests: small ones, which keep what they were told on the cluster of the stand-in and
refuse what the real ones refuse. A test process calls them; for a command line, `python -m standin.programs NAME`
sends the words to the stand-in's process."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from standin.eks import Cluster, EksError, add_addon, scale
from standin.world import World, inside

CUSTOM = {
    "ClusterQueue": "kueue",
    "LocalQueue": "kueue",
    "ResourceFlavor": "kueue",
    "Topology": "kueue",
    "PrometheusRule": "kube-prometheus-stack",
    "NodePool": "karpenter",
    "NodeClaim": "karpenter",
    "EC2NodeClass": "karpenter",
}
KINDS = {
    "services": "Service", "pvc": "PersistentVolumeClaim", "pv": "PersistentVolume", "pods": "Pod",
    "nodepools.karpenter.sh": "NodePool", "nodeclaims.karpenter.sh": "NodeClaim",
    "ec2nodeclasses.karpenter.k8s.aws": "EC2NodeClass", "pytorchjobs.kubeflow.org": "PyTorchJob",
}  # fmt: skip
DELETED = {
    "service": "Service", "pvc": "PersistentVolumeClaim", "daemonset": "DaemonSet", "pod": "Pod",
    **{name: kind for name, kind in KINDS.items() if "." in name},
}  # fmt: skip
ACCOUNT = "123456789012"


@dataclass
class Result:
    """A program that has ended, or will when its stack is made."""

    status: int = 0
    out: str = ""
    err: str = ""
    world: World | None = None
    region: str = ""
    stack: str = ""  # eksctl waits for it

    def poll(self) -> int | None:
        if self.stack and self.world is not None:
            with inside():
                state = self.world.region(self.region).find(self.stack).status
            if state.endswith("_IN_PROGRESS"):
                return None
            return 0 if state == "CREATE_COMPLETE" else 1
        return self.status

    def output(self) -> str:
        return self.out

    def errors(self) -> str:
        return self.err or self.stack


class Refused(Exception):
    pass


class StandInPrograms:
    """The three programs in this process. Each start is counted, and can be cut, as a call of AWS is."""

    def __init__(self, world: World, region: str, names: Sequence[str] = ("kubectl", "helm", "git")) -> None:
        self.world, self.region, self.names = world, region, names
        self.deleted: list[str] = []

    def has(self, name: str) -> bool:
        return name in self.names

    def start(self, words: Sequence[str], text: str = "", environment: Mapping[str, str] | None = None) -> Result:
        program, *rest = words
        if program == "git" or rest[:1] == ["dependency"]:  # a chart's repository, and the charts it depends on
            Path(rest[-1]).mkdir(parents=True, exist_ok=True)
            return Result()
        path = (environment or {}).get("KUBECONFIG", "")
        cluster = yaml.safe_load(Path(path).read_text())["current-context"].removeprefix("trainwright-") if path else ""
        config = Path(rest[rest.index("-f") + 1]).read_text() if "-f" in rest and program == "eksctl" else ""
        self._watch(program, rest[0], "before")
        result = self.call(program, rest, text or config, cluster)
        self._watch(program, rest[0], "after")
        return result

    def _watch(self, program: str, verb: str, when: str) -> None:
        faults = self.world.faults
        number = faults.seen(program, verb, self.world.clock.now()) if when == "before" else len(faults.calls)
        if faults.watch:
            faults.watch(number, program, verb, when)

    def call(self, program: str, words: Sequence[str], text: str, cluster: str) -> Result:
        with self.world.lock, inside():
            self.world.tick()
            try:
                function = {"kubectl": self._kubectl, "helm": self._helm, "eksctl": self._eksctl}[program]
                return function(list(words), text, cluster)
            except (Refused, EksError) as error:
                return Result(1, err=f"Error: {error}")

    def _cluster(self, name: str) -> Cluster:
        return self.world.region(self.region).eks.find(name)

    # kubectl

    def _kubectl(self, words: list[str], text: str, name: str) -> Result:
        cluster, verb = self._cluster(name), words[0]
        if verb == "wait":
            group = words[words.index("-l") + 1].partition("=")[2]
            return Result(0 if cluster.groups[group].nodes else 1, err="timed out waiting for the condition")
        if verb == "apply":
            return self._apply(cluster, words[-1], text)
        if verb == "get":
            kind = KINDS.get(words[1])
            if kind is None or CUSTOM.get(kind, "kueue") not in {"kueue", *cluster.releases}:
                raise Refused(f"the server doesn't have a resource type {words[1]!r}")
            wanted = dict([words[words.index("-l") + 1].split("=")]) if "-l" in words else {}
            rows = [o for (k, _, _), o in cluster.objects.items() if k == kind]
            rows = [o for o in rows if wanted.items() <= o["metadata"].get("labels", {}).items()]
            return Result(out=json.dumps({"items": rows}))
        if verb == "delete":
            return self._delete(cluster, words)
        raise Refused(f"unknown command {verb}")

    def _apply(self, cluster: Cluster, source: str, text: str) -> Result:
        folder = Path(source)
        if folder.is_dir():  # of kustomize: its file names what it changes
            [source] = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
        if source != "-":
            cluster.objects["Manifest", "", source] = {"metadata": {"name": source}}
            return Result()
        for document in yaml.safe_load_all(text):
            kind, meta = document["kind"], document["metadata"]
            needs = CUSTOM.get(kind)
            if needs and cluster.releases.get(needs, {}).get("status") != "deployed":
                raise Refused(f'no matches for kind "{kind}" in version "{document["apiVersion"]}"')
            cluster.objects[kind, meta.get("namespace", ""), meta["name"]] = document
        return Result()

    def _delete(self, cluster: Cluster, words: list[str]) -> Result:
        kind = DELETED[words[1]]
        namespace = words[words.index("--namespace") + 1] if "--namespace" in words else ""
        if kind == "PersistentVolumeClaim" and any(
            _uses(o, words[2]) for (k, *_), o in cluster.objects.items() if k == "Pod"
        ):
            raise Refused(f"timed out waiting for the condition on persistentvolumeclaims/{words[2]}")
        gone = cluster.objects.pop((kind, namespace, words[2]), None)
        if gone is None and "--ignore-not-found" in words:
            return Result()
        if gone is None:
            raise Refused(f'{words[1]} "{words[2]}" not found')
        self.deleted.append(f"{kind} {words[2]}")
        for key in [key for key in cluster.objects if kind == "PyTorchJob" and key[2].startswith(f"{words[2]}-")]:
            del cluster.objects[key]  # its pods
        ec2 = self.world.client("ec2", self.region)
        for interface in gone.get("interfaces", []):  # those of the load balancer
            ec2.delete_network_interface(NetworkInterfaceId=interface)
        for key, volume in list(cluster.objects.items()):
            claim = volume.get("spec", {}).get("claimRef", {}) if key[0] == "PersistentVolume" else {}
            delete = volume.get("spec", {}).get("persistentVolumeReclaimPolicy") == "Delete"
            if kind == "PersistentVolumeClaim" and claim.get("name") == words[2] and delete:
                ec2.delete_volume(VolumeId=volume["volume"])
                del cluster.objects[key]
        return Result()

    # helm

    def _helm(self, words: list[str], text: str, name: str) -> Result:
        cluster, verb = self._cluster(name), words[0]
        if verb == "list":
            return Result(out=json.dumps(list(cluster.releases.values())))
        if verb == "get":
            return Result(out=json.dumps(cluster.releases[words[2]]["values"]))
        if verb == "uninstall":
            del cluster.releases[words[1]]
            return Result()
        if verb == "upgrade":
            release, chart = words[2], words[3].rpartition("/")[2]
            old = cluster.releases.get(release, {})
            if str(old.get("status", "")).startswith("pending"):
                raise Refused("UPGRADE FAILED: another operation (install/upgrade/rollback) is in progress")
            values, version = json.loads(text), words[words.index("--version") + 1]
            if words[3].startswith("/"):  # a folder: helm reads name and version in it
                chart, version = "hyperpod-helm-chart", "0.1.0"
            row = {"name": release, "chart": f"{chart}-{version}", "values": values, "status": "pending-install"}
            cluster.releases[release] = row
            self._watch("helm", "working", "before")  # ended here, the release stays as it is
            row["status"] = "deployed"
            return Result()
        raise Refused(f"unknown command {verb}")

    # eksctl

    def _eksctl(self, words: list[str], text: str, name: str) -> Result:
        if words[0] == "scale":
            return self._scale(dict(zip(words[2::2], words[3::2], strict=True)))
        config = yaml.safe_load(text)
        name, noun = config["metadata"]["name"], words[1]
        if noun == "cluster":
            body, stack = _control_plane(config), f"eksctl-{name}-cluster"
        elif noun == "nodegroup":
            group = next(w.partition("=")[2] for w in words if w.startswith("--include="))
            wanted = next(one for one in config["managedNodeGroups"] if one["name"] == group)
            body, stack = _node_group(config, wanted, self._cluster(name)), f"eksctl-{name}-nodegroup-{group}"
        elif noun == "addon":
            for addon in config["addons"]:
                add_addon(self._cluster(name), addon["name"])
            return Result()
        elif noun == "accessentry":
            for entry in config["accessConfig"]["accessEntries"]:
                if entry["principalARN"] in self._cluster(name).access:
                    raise Refused("access entry already exists")
                self._cluster(name).access.append(entry["principalARN"])
            return Result()
        else:
            return self._identities(config)
        region = self.world.region(self.region)
        if any(one.name == stack and one.deleted is None for one in region.stacks.values()):
            raise Refused(f"creating CloudFormation stack {stack!r}: AlreadyExistsException")
        region.create(stack, json.dumps(body), {}, dict(config["metadata"]["tags"]), "", True)
        return Result(world=self.world, region=self.region, stack=stack)

    def _scale(self, options: dict[str, str]) -> Result:
        region, name, group = self.world.region(self.region), options["--cluster"], options["--name"]
        assert options["--region"] == self.region
        stack = region.find(f"eksctl-{name}-nodegroup-{group}")
        [made] = [one for one in stack.resources.values() if one.kind == "AWS::EKS::Nodegroup"]
        size = {**made.props["ScalingConfig"], "DesiredSize": int(options["--nodes"])}
        if not size["MinSize"] <= size["DesiredSize"] <= size["MaxSize"]:
            raise Refused(f"desired capacity {size['DesiredSize']} is not between the group's least and most")
        scale(made.physical, {**made.props, "ScalingConfig": size}, region.place(stack, made.logical))
        return Result()

    def _identities(self, config: dict[str, Any]) -> Result:
        name, region = config["metadata"]["name"], self.world.region(self.region)
        for one in config["iam"]["podIdentityAssociations"]:
            pair = (one["namespace"], one["serviceAccountName"])
            if pair in self._cluster(name).identities:
                raise Refused("one or more podidentityassociation already exist")
            role = {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {}}}
            stack = f"eksctl-{name}-podidentityrole-{'-'.join(pair)}"
            if any(s.name == stack and s.deleted is None for s in region.stacks.values()):
                raise Refused(f"creating CloudFormation stack {stack!r}: AlreadyExistsException")
            region.create(
                stack, json.dumps({"Resources": {"RoleARN": role}}), {}, dict(config["metadata"]["tags"]), "", True
            )
            self._cluster(name).identities.append(pair)
            self._cluster(name).objects["ServiceAccount", *pair] = {"metadata": {"name": pair[1]}}
        return Result()


def _uses(pod: dict[str, Any], claim: str) -> bool:
    volumes = pod["spec"].get("volumes", [])
    return any(volume.get("persistentVolumeClaim", {}).get("claimName") == claim for volume in volumes)


def _control_plane(config: dict[str, Any]) -> dict[str, Any]:
    """What eksctl puts into its first stack, as far as a test looks at it."""
    subnets = [one["id"] for one in config["vpc"]["subnets"]["private"].values()]
    shared = {"GroupDescription": "Communication between all nodes in the cluster", "VpcId": config["vpc"]["id"]}
    properties = {
        "Name": config["metadata"]["name"], "Version": config["metadata"]["version"],
        "ResourcesVpcConfig": {"SubnetIds": subnets},
    }  # fmt: skip
    return {
        "Resources": {
            "ServiceRole": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {}}},
            "ClusterSharedNodeSecurityGroup": {"Type": "AWS::EC2::SecurityGroup", "Properties": shared},
            "ControlPlane": {"Type": "AWS::EKS::Cluster", "Properties": properties},
            "Cni": {
                "Type": "AWS::EKS::Addon",
                "Properties": {"ClusterName": {"Ref": "ControlPlane"}, "AddonName": "vpc-cni"},
            },
        }
    }


def _node_group(config: dict[str, Any], group: dict[str, Any], cluster: Cluster) -> dict[str, Any]:
    groups = [cluster.security_group, *group.get("securityGroups", {}).get("attachIDs", [])]
    data = {"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": groups}], "InstanceType": group["instanceType"]}
    size = {"MinSize": group["minSize"], "MaxSize": group["maxSize"], "DesiredSize": group["desiredCapacity"]}
    return {
        "Resources": {
            "NodeInstanceRole": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {}}},
            "LaunchTemplate": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}},
            "ManagedNodeGroup": {
                "Type": "AWS::EKS::Nodegroup",
                "Properties": {
                    "ClusterName": cluster.name, "NodegroupName": group["name"], "ScalingConfig": size,
                    "Subnets": group["subnets"], "LaunchTemplate": {"Id": {"Ref": "LaunchTemplate"}},
                },
            },
        }
    }  # fmt: skip


def main() -> None:
    """One of the programs as a command: its words go to the stand-in's process."""
    program, *words = sys.argv[1:]
    if program == "git" or words[:1] == ["dependency"]:
        Path(words[-1]).mkdir(parents=True, exist_ok=True)
        return
    path = os.environ.get("KUBECONFIG", "")
    kubeconfig = yaml.safe_load(Path(path).read_text()) if path else {"current-context": ""}
    asked = {
        "program": program, "words": words, "region": "",
        "text": sys.stdin.read() if "-" in words else "",
        "cluster": kubeconfig["current-context"].removeprefix("trainwright-"),
    }  # fmt: skip
    if program == "eksctl" and "-f" in words:
        asked["text"] = Path(words[words.index("-f") + 1]).read_text()
        asked["region"] = yaml.safe_load(asked["text"])["metadata"]["region"]
    elif program == "eksctl":
        asked["region"] = words[words.index("--region") + 1]
    else:
        arguments = kubeconfig["users"][0]["user"]["exec"]["args"]
        asked["region"] = arguments[arguments.index("--region") + 1]
    address = f"{os.environ['AWS_ENDPOINT_URL']}/standin/program"
    while True:
        request = urllib.request.Request(address, data=json.dumps(asked).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            ended = json.load(answer)
        if ended["status"] is not None:
            break
        asked = {"stack": ended["stack"], "region": asked["region"]}
    sys.stdout.write(ended["out"])
    sys.stderr.write(ended["err"])
    sys.exit(ended["status"])


if __name__ == "__main__":
    main()
