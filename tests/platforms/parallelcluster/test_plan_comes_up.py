"""Would this cluster come up? What its nodes fetch and put on the way, held against what the plan lets them do."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwright.catalog.runtime import runtime_pins
from trainwright.platforms.parallelcluster.boot import HERE, pins
from trainwright.platforms.plan.tree import ClusterPlan, make_plan
from trainwright.spec.load import load, load_text
from trainwright.spec.source import Node, parse
from trainwright.stacks.library import template

ROOT = Path(__file__).parents[3]
OWN = "111122223333"
REGION = "us-east-2"
# (who signs the request, action, bucket, why): platform-notes 1a has the source of each.
REQUESTS = [
    ("aws", "s3:PutObject", f"cloudformation-waitcondition-{REGION}", "the head node signals that it is up"),
    ("aws", "s3:PutObject", f"cloudformation-custom-resource-response-{REGION.replace('-', '')}", "custom resources"),
    ("nobody", "s3:GetObject", f"{REGION}-aws-parallelcluster", "the cookbook"),
    ("nobody", "s3:GetObject", f"prod-{REGION}-starport-layer-bucket", "layers of container images"),
    ("nobody", "s3:GetObject", "fsx-lustre-client-repo", "the Lustre client"),
    ("nobody", "s3:GetObject", "amazoncloudwatch-agent", "the CloudWatch agent"),
    ("nobody", "s3:GetObject", f"al2023-repos-{REGION}-de612dc2", "packages of Amazon Linux"),
    ("nobody", "s3:GetObject", "aws-efa-installer", "the EFA installer"),
    ("own", "s3:GetObject", "parallelcluster-0123456789abcdef-v1-do-not-delete", "the cluster's own bucket"),
    ("own", "s3:PutObject", "our-bucket", "checkpoints"),
]


def statements() -> list[dict[str, Any]]:
    (root,) = parse(template("network").text, "network")
    document = root.get("Resources", "S3Endpoint", "Properties", "PolicyDocument", "Statement")
    assert document is not None
    return [plain(statement) for statement in document.elements()]


def plain(node: Node) -> Any:
    """A template's value with this region and account put in."""
    if node.is_map:
        return {key: plain(child) for key, child in node.items()}
    if node.is_list and node.tag == "Sub":
        return plain(next(node.elements()))
    if node.is_list:
        return [plain(child) for child in node.elements()]
    text = str(node.value)
    for name, value in {"Region": REGION, "Partition": "aws", "AccountId": OWN}.items():
        text = text.replace(f"${{AWS::{name}}}", value).replace(f"AWS::{name}", value)
    return re.sub(r"\$\{\w+\}", REGION.replace("-", ""), text)


def allows(statement: dict[str, Any], signer: str, action: str, bucket: str) -> bool:
    def fits(patterns: Any, value: str) -> bool:
        listed = patterns if isinstance(patterns, list) else [patterns]
        return any(re.fullmatch(str(p).replace("*", ".*"), value) for p in listed)

    account = statement.get("Condition", {}).get("StringEquals", {}).get("aws:PrincipalAccount")
    return (
        statement["Effect"] == "Allow"
        and fits(statement["Action"], action)
        and fits(statement["Resource"], f"arn:aws:s3:::{bucket}/key")
        and (account is None or signer == "own")
    )


@pytest.mark.parametrize(("signer", "action", "bucket", "why"), REQUESTS, ids=[row[3] for row in REQUESTS])
def test_the_s3_endpoint_lets_a_cluster_come_up(signer: str, action: str, bucket: str, why: str) -> None:
    assert any(allows(statement, signer, action, bucket) for statement in statements()), why


def test_our_boot_scripts_fetch_from_nowhere_else() -> None:
    """A new address in a script belongs into this list, and one on S3 into the table above."""
    hosts: set[str] = set()
    for path in (HERE / "scripts").glob("*.j2"):
        text = path.read_text()
        hosts |= set(re.findall(r"https?://([\w.-]+)", text))
        assert all('"$from/' in line for line in text.splitlines() if "aws s3 cp" in line), "the plan's own bucket"
    hosts |= {re.sub(r"https://([^/]+)/.*", r"\1", pins()["lustre_efa"]["url"])}
    loopback = {host for host in hosts if host.startswith(("127.", "localhost"))}
    assert not any("s3" in host.split(".") or host.endswith("amazonaws.com") for host in hosts)
    known = {"download.docker.com", "nvidia.github.io", "docs.aws.amazon.com", "apt.grafana.com"}
    known |= {"github.com"}  # enroot and pyxis of HyperPod's nodes; ParallelCluster's images bring theirs
    assert hosts - loopback == known


def test_the_s3_endpoint_writes_nowhere_else_with_others_keys() -> None:
    assert not any(allows(statement, "aws", "s3:PutObject", "somebody-elses-bucket") for statement in statements())


def script(name: str, **software: str) -> str:
    spec = {
        "name": "up", "platform": "parallelcluster", "region": REGION,
        "queues": [{"name": "train", "instance": "p5.48xlarge", "count": 2}],
        "storage": [{"mount": "/scratch", "nvme": "raid0"}], "software": {"os": "ubuntu2404", **software},
    }  # fmt: skip
    return make_plan(load_text(yaml.safe_dump(spec), "spec.yaml")).files[f"scripts/{name}"]


def test_containers_see_the_network_cards() -> None:
    text = script("enroot.sh", containers="enroot")
    assert re.search(r"^ENROOT_RESTRICT_DEV no$", text, re.M), "with `yes`, /dev/infiniband is hidden and EFA is lost"


def test_enroot_may_make_user_namespaces_on_ubuntu_2404() -> None:
    text = script("enroot.sh", containers="enroot")
    assert "/etc/apparmor.d/enroot" in text
    assert "apparmor_parser -r" in text
    assert "enroot-nsenter" in text


def test_the_container_toolkit_is_pinned_whole() -> None:
    text = script("docker.sh", containers="docker")
    version = pins()["docker"]["toolkit"]
    packages = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools")
    for package in (*packages, "libnvidia-container1"):
        assert f'"{package}={version}"' in text, package
        assert re.search(rf"apt-mark hold [^\n]*(\\\n[^\n]*)*\b{package}\b", text), package


@pytest.mark.parametrize("name", sorted(path.name for path in (HERE / "scripts").glob("*.j2")))
def test_every_hole_of_a_script_is_quoted(name: str) -> None:
    """A value that reaches a root shell goes through the quoting filter: the engine refuses a template that prints one
    without it."""
    from trainwright.platforms.parallelcluster.boot import render

    hostile = "/x$(touch pwned)`id`'\"; rm -rf $HOME #"
    monitoring = {
        "runs": hostile,
        "configuration": "",
        "port": 1,
        "retention": "1d",
        "as_root": [hostile],
        "install": None,
        "grafana": hostile,
    }
    pinned = pins()["docker"] | pins()["lustre_efa"] | asdict(runtime_pins())
    places = dict.fromkeys(("scratch", "cluster", "root", "runtime", "code", "archive", "folder"), hostile)
    files = [(hostile, "0", hostile)]
    text = render(
        name,
        **places,
        os="ubuntu2404",
        pins=pinned,
        run_folders=[hostile],
        files=files,
        scripts=[(hostile, "0")],
        wait=1,
        **monitoring,
    )
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in text.splitlines():
        rest = line.replace(shlex.quote(hostile), "")
        assert "touch pwned" not in rest or line.strip().startswith("cluster:"), line


def test_a_hostile_mount_never_gets_as_far() -> None:
    from trainwright.spec.mistakes import SpecError

    with pytest.raises(SpecError, match="is no folder"):
        load_text(
            "name: x\nplatform: local\nqueues: [{name: a}]\nstorage: [{mount: '/s$(touch x)', nvme: raid0}]\n", "s"
        )
    with pytest.raises(SpecError, match="is no name"):
        load_text('name: "x\\ny"\nplatform: local\nqueues: [{name: a}]\n', "s")


@pytest.fixture
def p5() -> ClusterPlan:
    return make_plan(load(ROOT / "examples" / "p5-reservation.yaml"))


def test_a_plan_can_be_deployed_and_undone_by_its_own_scripts(p5: ClusterPlan, tmp_path: Path) -> None:
    for name in ("deploy.sh", "undeploy.sh"):
        path = tmp_path / name
        path.write_text(p5.files[name])
        done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    deploy = p5.files["deploy.sh"]
    order = [deploy.index(f"stack {key} ") for key in ("network", "bucket", "lustre-fsx", "openzfs-home")]
    assert order == sorted(order)
    for file, key in p5.scripts.items():
        assert file in deploy, "its own scripts and no others"
        assert key in deploy
    assert f"--region {p5.spec.region}" in deploy or f"region={p5.spec.region}" in deploy
