"""What other platforms get: Kubernetes manifests that the API's own schema accepts, scrape configurations that promtool
accepts, and the stack of managed Prometheus and Grafana with the same rules."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.platforms.monitoring.kubernetes import manifests
from trainwright.platforms.monitoring.prometheus import from_ec2, from_kubernetes, prometheus_config
from trainwright.platforms.monitoring.rules import alerts, rule_files
from trainwright.stacks.library import template

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def rendered() -> list[dict[str, Any]]:
    return manifests("monitoring")


def test_the_manifests_fit_kubernetes_schema(rendered: list[dict[str, Any]]) -> None:
    import kubernetes_validate

    own = [item for item in rendered if "coreos" not in item["apiVersion"]]  # the operator's are not in that schema
    assert {item["kind"] for item in own} == {"Namespace", "ConfigMap", "DaemonSet"}
    for item in own:
        kubernetes_validate.validate(json.loads(json.dumps(item)), "1.30", strict=True)
        assert len(json.dumps(item)) < 1_000_000  # the most that etcd keeps in one object
    (rules,) = [item for item in rendered if item["kind"] == "PrometheusRule"]
    assert [r["alert"] for g in rules["spec"]["groups"] for r in g["rules"] if "alert" in r] == [
        alert["alert"] for alert in alerts()
    ]


def test_the_container_starts_what_the_config_map_carries(rendered: list[dict[str, Any]], tmp_path: Path) -> None:
    """The container's own command, with its folders moved to a temporary one."""
    code = next(item for item in rendered if "binaryData" in item)
    (tmp_path / "exporter.zip").write_bytes(base64.b64decode(code["binaryData"]["exporter.zip"]))
    pod = next(item for item in rendered if item["kind"] == "DaemonSet")["spec"]["template"]["spec"]
    shell, flag, command = pod["containers"][0]["command"]
    command = command.replace("/code/", f"{tmp_path}/").replace("/tmp/code", f"{tmp_path}/code")
    command = command.replace("python3", sys.executable).replace("/host", "/") + " --once"
    environment = {"HOST_IP": "10.0.0.1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([shell, flag, command], env=environment, capture_output=True, text=True, check=True)
    assert "trainwright_host_memory_size_bytes" in done.stdout


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    "discovery", [from_ec2("us-east-2", "c"), from_kubernetes("monitoring")], ids=["ec2", "kubernetes"]
)
def test_promtool_accepts_the_discovery(discovery: dict[str, Any], tmp_path: Path) -> None:
    for name, text in rule_files().items():
        (tmp_path / name).write_text(text)
    config = prometheus_config("c", discovery, "127.0.0.1:9093", rules=f"{tmp_path}/*.yaml")
    path = tmp_path / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    done = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True)
    if "field kubernetes_sd_configs not found" in done.stderr:
        pytest.skip("Debian builds Prometheus without Kubernetes")
    assert done.returncode == 0, done.stderr


def test_the_stack_has_the_same_rules() -> None:
    class Loader(yaml.SafeLoader):
        """CloudFormation's short functions are of no interest here."""

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    stack = yaml.load(template("monitoring").text, Loader)
    resources = stack["Resources"]
    kept = [
        item["Properties"]["Data"] for item in resources.values() if item["Type"] == "AWS::APS::RuleGroupsNamespace"
    ]
    assert [yaml.safe_load(text) for text in kept] == [yaml.safe_load(text) for text in rule_files().values()]


def test_an_eks_plan_with_monitoring_installs_all_of_it() -> None:
    from trainwright.platforms.plan.tree import make_plan
    from trainwright.spec.load import load

    wanted = "monitoring={alerts: {webhook: 'http://10.0.0.9/x'}, retention_days: 7}"
    files = make_plan(load(ROOT / "examples/eks-g5.yaml", [wanted])).files
    kinds = [item["kind"] for item in yaml.safe_load_all(files["kubernetes/monitoring.yaml"])]
    assert kinds[:5] == ["Namespace", "ConfigMap", "DaemonSet", "PodMonitor", "PrometheusRule"]
    (chart,) = [chart for chart in json.loads(files["charts.json"]) if chart["name"] == "kube-prometheus-stack"]
    assert chart["values"]["prometheus"]["prometheusSpec"]["retention"] == "7d"
    receivers = chart["values"]["alertmanager"]["config"]["receivers"]
    assert receivers[0]["webhook_configs"][0]["url"] == "http://10.0.0.9/x"
    # The chart's own routes name the receiver "null", and Helm keeps what a plan does not replace.
    assert chart["values"]["alertmanager"]["config"]["route"]["routes"] == []
    assert [one["name"] for one in receivers] == ["on-call", "null"]
    for hidden in ("kubeScheduler", "kubeControllerManager", "kubeEtcd"):
        assert chart["values"][hidden] == {"enabled": False}
    assert chart["values"]["prometheus"]["prometheusSpec"]["storageSpec"]["emptyDir"]["sizeLimit"]
    assert "install_chart kube-prometheus-stack" in files["deploy.sh"]
    without = make_plan(load(ROOT / "examples/eks-g5.yaml")).files
    assert "kubernetes/monitoring.yaml" not in without
    assert "kube-prometheus-stack" not in without["charts.json"]


@pytest.mark.parametrize("example", ["eks-g5", "hyperpod-eks-p5"])
def test_prometheus_on_eks_may_write_to_the_managed_workspace(example: str) -> None:
    """With eksctl and without; another Prometheus asks for no role."""
    from trainwright.platforms.plan.tree import make_plan
    from trainwright.spec.load import load

    address = "https://aps-workspaces.us-east-2.amazonaws.com/workspaces/ws-1/api/v1/remote_write"
    files = make_plan(load(ROOT / f"examples/{example}.yaml", [f"monitoring={{remote_write: '{address}'}}"])).files
    who = [one for one in yaml.safe_load(files["cluster.yaml"])["iam"]["podIdentityAssociations"]
           if one["namespace"] == "monitoring"]  # fmt: skip
    (chart,) = [chart for chart in json.loads(files["charts.json"]) if chart["name"] == "kube-prometheus-stack"]
    assert [one["serviceAccountName"] for one in who] == [chart["values"]["prometheus"]["serviceAccount"]["name"]]
    [statement] = who[0]["permissionPolicy"]["Statement"]
    workspace = "arn:aws:aps:us-east-2:*:workspace/ws-1"
    assert (statement["Action"], statement["Resource"]) == (["aps:RemoteWrite"], [workspace])
    assert workspace in files["without-eksctl/addons.parameters.json"]
    other = make_plan(load(ROOT / f"examples/{example}.yaml", ["monitoring={remote_write: 'http://10.0.0.9/w'}"])).files
    assert "aps:RemoteWrite" not in other["cluster.yaml"]


def test_the_relay_of_a_local_cluster_reaches_its_nodes_only() -> None:
    import socket
    import threading
    import urllib.error
    import urllib.request
    from http.server import ThreadingHTTPServer

    from trainwright.platforms.local.relay import Relay

    with ThreadingHTTPServer(("127.0.0.1", 0), Relay) as server, socket.create_server(("127.77.9.9", 0)) as node:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        proxy = urllib.request.ProxyHandler({"http": f"http://127.0.0.1:{server.server_port}"})
        opener = urllib.request.build_opener(proxy)

        def answer() -> None:
            connection, _ = node.accept()
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nup\n")
            connection.close()

        threading.Thread(target=answer, daemon=True).start()
        assert opener.open(f"http://127.77.9.9:{node.getsockname()[1]}/metrics", timeout=10).read() == b"up\n"
        for refused in ("http://127.0.0.1:1/", "http://10.0.0.1/", "http://127.77.example.com/"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                opener.open(refused, timeout=10)
        server.shutdown()
