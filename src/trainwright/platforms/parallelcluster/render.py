"""From a spec to the one file ParallelCluster takes, as data that carries its reasons. What ParallelCluster cannot
do was reported by `check` before."""

from __future__ import annotations

from typing import Any

from trainwright.catalog.versions import version_set
from trainwright.platforms.annotated import Why
from trainwright.platforms.directory.join import UNIX, DirectoryAccess
from trainwright.platforms.parallelcluster.access import node_iam
from trainwright.platforms.parallelcluster.boot import COMPLETIONS, BootScript, actions, head_scripts
from trainwright.platforms.parallelcluster.queues import queue
from trainwright.platforms.parallelcluster.storage import shared_storage
from trainwright.platforms.setting import Setting, gib
from trainwright.platforms.wiring import Ids

LOG_DAYS = 30


def cluster_file(setting: Setting, scripts: tuple[BootScript, ...], ids: Ids) -> dict[str, Any]:
    """The whole cluster configuration."""
    spec = setting.spec
    storage = shared_storage(setting, ids)
    return {
        "Region": spec.region,
        "Image": _image(setting),
        "Imds": Why({"ImdsSupport": "v2.0"}, "version 1 exposes a node's credentials to server-side request forgery"),
        "HeadNode": _head(setting, scripts, ids),
        "Scheduling": {
            "Scheduler": "slurm",
            "SlurmSettings": _slurm(setting, ids),
            "SlurmQueues": [queue(setting, item, scripts, ids) for item in spec.queues],
        },
        **({"SharedStorage": storage} if storage else {}),
        **({"DirectoryService": _directory(ids.directory)} if ids.directory else {}),
        "Monitoring": _monitoring(setting),
        "Tags": [{"Key": key, "Value": value} for key, value in _tags(setting).items()],
    }


def header(spec_name: str, source: str) -> str:
    """The comment on top of the file."""
    version = version_set("default").parallelcluster
    return (
        f"Written by `trainwright plan` from {source}: edit that file, not this one.\n"
        f"ParallelCluster {version}. Values that start with stack-output: are outputs of this plan's stacks: deploy\n"
        f"those first and put their outputs in; deploy.sh beside this file does all of it and ends with\n"
        f"  pcluster create-cluster --cluster-name {spec_name} --cluster-configuration cluster.yaml"
    )


def _image(setting: Setting) -> dict[str, Any]:
    software = setting.spec.software
    if software.image == "stock":
        return {"Os": software.os}
    why = f"must be built for ParallelCluster {version_set('default').parallelcluster}: others are refused at boot"
    return {"Os": software.os, "CustomAmi": Why(software.image, why)}


def _head(setting: Setting, scripts: tuple[BootScript, ...], ids: Ids) -> dict[str, Any]:
    spec = setting.spec
    head = spec.head
    groups = [group for group in (ids.security_group, ids.database.get("client")) if group is not None]
    ours = head_scripts(scripts)
    custom = actions(ours, head.scripts, spec.name, ids.bucket)
    return {
        "InstanceType": head.instance,
        "Networking": {"SubnetId": ids.public_subnet, **({"AdditionalSecurityGroups": groups} if groups else {})},
        "Ssh": _ssh(setting),
        "LocalStorage": {"RootVolume": {"Size": gib(head.root_volume), "Encrypted": True, "VolumeType": "gp3"}},
        "Imds": Why({"Secured": True}, "only root and the cluster's own services can read the head node's credentials"),
        "Iam": node_iam(setting, ids.bucket if ours else None, head.scripts),
        **({"CustomActions": custom} if custom else {}),
    }


def _ssh(setting: Setting) -> dict[str, Any]:
    head = setting.spec.head
    if head.key is None:
        closed = Why("127.0.0.1/32", "no key, so no open port: `trainwright connect` goes through Session Manager")
        return {"AllowedIps": closed}
    return {"KeyName": head.key, "AllowedIps": head.ssh_from}


def _slurm(setting: Setting, ids: Ids) -> dict[str, Any]:
    spec = setting.spec
    settings: dict[str, Any] = {
        "QueueUpdateStrategy": Why("DRAIN", "running jobs end before the nodes of a changed queue are replaced")
    }
    extra: dict[str, Any] = dict(spec.slurm)
    if ids.database:
        settings["Database"] = Why(
            {
                "Uri": ids.database["uri"],
                "UserName": ids.database["user"],
                "PasswordSecretArn": ids.database["secret"],
            },
            "job records in a database: `sacct` over months, fair share, limits",
        )
        extra.setdefault("AccountingStorageTRES", "gres/gpu")
    elif "JobCompType" not in extra:
        why = "without a database, the record of finished jobs: `trainwright runs` and `jobs` read it"
        extra |= {"JobCompType": Why("jobcomp/filetxt", why), "JobCompLoc": f"{COMPLETIONS}/completed.log"}
    if extra:
        settings["CustomSlurmSettings"] = [{key: value} for key, value in extra.items()]
    return settings


def _directory(access: DirectoryAccess) -> Why:
    settings = {
        "DomainName": access.base,
        "DomainAddr": access.uri,
        "PasswordSecretArn": access.secret,
        "DomainReadOnlyUser": access.reader,
        "LdapTlsCaCert": access.ca,
        "LdapTlsReqCert": "hard",
        "AdditionalSssdConfigs": Why(
            dict(UNIX), "Unix accounts with their own numbers; the default is Active Directory"
        ),
    }
    return Why(settings, "users come from a directory: the same names, numbers and ssh keys on every node")


def _monitoring(setting: Setting) -> dict[str, Any]:
    logs = {"CloudWatch": {"Enabled": True, "RetentionInDays": LOG_DAYS, "DeletionPolicy": "Retain"}}
    settings: dict[str, Any] = {
        "Logs": Why(logs, "needed when a node does not start; kept after the cluster is deleted"),
        "Dashboards": {"CloudWatch": {"Enabled": True}},
        "Alarms": {"Enabled": True},
    }
    if setting.spec.monitoring:
        settings = {"DetailedMonitoring": Why(True, "EC2 metrics every minute rather than every five"), **settings}
    return settings


def _tags(setting: Setting) -> dict[str, str]:
    return {**setting.spec.tags, "trainwright:cluster": setting.spec.name}
