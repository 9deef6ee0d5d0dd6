"""What a Ray head and a StorageClass of FSx for Lustre need in order to start: K8S002 and STO002."""

from __future__ import annotations

import pytest
import yaml
from reported import shown

from trainwright.check.config import Config
from trainwright.check.engine import RulePlan, Selection, check_text


def codes(text: str, code: str) -> list[str]:
    plan = RulePlan.of(Selection(select=(code,)), {}, Config())
    return [line for line in shown(check_text("a.yaml", lambda: text, True, plan).findings) if "info" not in line]


@pytest.mark.parametrize(
    ("params", "refused"),
    [
        ({"port": "10001"}, True),
        ({"port": "10001", "ray-client-server-port": "10002", "worker-port-list": "11000,11001"}, False),
        ({"port": "8265"}, True),
        ({"port": "8265", "dashboard-port": "8266"}, False),
        ({"port": "6379", "ray-client-server-port": "6379"}, True),
        ({"dashboard-port": "52365"}, True),
        ({"port": "12345"}, True),  # of the workers
        ({"port": "12345", "min-worker-port": "20000", "max-worker-port": "20999"}, False),
        ({"port": "6379", "ray-client-server-port": "10001", "dashboard-port": "8265"}, False),
        ({"port": "0", "node-manager-port": "0"}, False),
        ({"port": "${PORT}"}, False),
    ],
)
def test_ports_of_a_ray_head(params: dict[str, str], refused: bool) -> None:
    """As `ray start --head` of Ray 2.60 answers."""
    pod = {"containers": [{"name": "head", "image": "rayproject/ray:2.44.1"}]}
    head = {"rayStartParams": params, "template": {"spec": pod}}
    value = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "a"},
        "spec": {"headGroupSpec": head},
    }
    assert len(codes(yaml.safe_dump(value), "K8S002")) == refused


CLASS = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: fsx}\nprovisioner: fsx.csi.aws.com\n"
CLAIM = (
    "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec:\n  storageClassName: fsx\n"
    "  accessModes: [ReadWriteMany]\n  resources: {requests: {storage: 1200Gi}}\n"
)
VOLUME = (
    "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec:\n  storageClassName: fsx\n"
    "  csi: {driver: fsx.csi.aws.com, volumeHandle: fs-0123456789abcdef0}\n"
)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (CLASS + CLAIM, True),
        (CLASS + "parameters: {deploymentType: SCRATCH_2}\n" + CLAIM, True),
        (CLASS + "parameters: {subnetId: subnet-0123456789abcdef0}\n" + CLAIM, False),
        (CLASS + "parameters: {subnetId: ${SUBNET}}\n" + CLAIM, False),
        (CLASS + CLAIM + VOLUME, False),  # the volume exists already
        (CLASS + CLAIM + "  volumeName: a\n", False),
        (CLASS, False),
        (CLASS.replace("fsx.csi", "efs.csi") + CLAIM, False),
        (CLASS + "parameters: {{ toYaml .Values.parameters | nindent 2 }}\n" + CLAIM, False),
    ],
)
def test_a_class_of_lustre_names_its_subnet(text: str, refused: bool) -> None:
    assert codes(text, "STO002") == ["warning STO002 4"] * refused
