"""deploy.sh and undeploy.sh, run for real against stand-ins of `aws` and `pcluster` that keep a small account in a
folder: what was asked of them, in which order, and what an answer that cannot be had leads to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trainwright.platforms.plan.tree import make_plan, write
from trainwright.spec.load import load

ROOT = Path(__file__).parents[3]
AWS = r"""#!/bin/bash
echo "aws $*" >> "$ACCOUNT/calls"
shift 4
case "$1 $2" in
  "sts get-caller-identity") echo 111122223333 ;;
  "cloudformation deploy")
    touch "$ACCOUNT/stacks/$4"
    case $4 in *-lustre-* | *-openzfs-*) echo AVAILABLE > "$ACCOUNT/fs-$4" ;; esac ;;
  "fsx delete-file-system") echo DELETING > "$ACCOUNT/$4" ;;
  "fsx describe-file-systems") # one that is being deleted is gone at the next look
    for system in "$ACCOUNT"/fs-*; do
      case $* in *"'$(basename "$system")'"*) cat "$system"; grep -q AVAILABLE "$system" || rm "$system" ;; esac
    done ;;
  "cloudformation describe-stacks")
    case $* in
      *FileSystemId*) echo "fs-$4" ;;
      *BucketName*) echo the-bucket ;;
      *-network*) printf 'Vpc\tvpc-1\nPublicSubnet\tsubnet-1\nPrivateSubnet\tsubnet-2\nSecurityGroup\tsg-1\n' ;;
      *-bucket*) printf 'BucketName\tthe-bucket\n' ;;
      *-lustre*) printf 'FileSystemId\tfs-1\n' ;;
      *-openzfs*) printf 'RootVolumeId\tfsvol-1\n' ;;
    esac ;;
  "cloudformation list-stacks")
    for stack in "$ACCOUNT"/stacks/*; do case $* in *"'$(basename "$stack")'"*) echo CREATE_COMPLETE ;; esac; done ;;
  "cloudformation delete-stack")
    # CloudFormation cannot delete the security group of a file system that is still there.
    [ ! -e "$ACCOUNT/fs-$4" ] || { echo "resource sg-1 has a dependent object" >&2; exit 1; }
    rm "$ACCOUNT/stacks/$4" ;;
esac
"""
PCLUSTER = r"""#!/bin/bash
echo "pcluster $*" >> "$ACCOUNT/calls"
case $1 in
  list-clusters)
    [ ! -e "$ACCOUNT/no-answer" ] || { echo "expired token" >&2; exit 1; }
    if [ -e "$ACCOUNT/cluster" ]; then echo '["CREATE_COMPLETE"]'; else echo '[]'; fi ;;
  create-cluster) cp .deployed/cluster.yaml "$ACCOUNT/cluster" ;;
  update-cluster)
    cmp -s .deployed/cluster.yaml "$ACCOUNT/cluster" &&
      { echo '{"message": "Bad Request: No changes found in your cluster configuration."}'; exit 1; }
    cp .deployed/cluster.yaml "$ACCOUNT/cluster" ;;
  delete-cluster) rm "$ACCOUNT/cluster" ;;
esac
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan in a folder, and an empty account."""
    write(made := make_plan(load(ROOT / "examples" / "p5-reservation.yaml")), tmp_path / "plan", {}, None)
    assert made.stacks
    (tmp_path / "account" / "stacks").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name, text in {"aws": AWS, "pcluster": PCLUSTER, "sleep": "#!/bin/bash\n"}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path / "plan"


def run(plan: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{plan.parent / 'bin'}:{os.environ['PATH']}", "ACCOUNT": str(plan.parent / "account")}
    return subprocess.run([plan / script, *words], env=environment, capture_output=True, text=True, timeout=60)


def stacks(plan: Path) -> set[str]:
    return {path.name for path in (plan.parent / "account" / "stacks").iterdir()}


def test_it_deploys_every_stack_every_script_and_the_cluster(plan: Path) -> None:
    done = run(plan, "deploy.sh")
    assert done.returncode == 0, done.stderr
    names = {"network", "bucket", "lustre-fsx", "openzfs-home"}
    assert stacks(plan) == {f"p5-reservation-{name}" for name in names}
    cluster = (plan.parent / "account" / "cluster").read_text()
    assert "stack-output:network" not in cluster
    assert "subnet-2" in cluster
    assert "s3://the-bucket/trainwright/p5-reservation/" in cluster
    calls = (plan.parent / "account" / "calls").read_text()
    assert calls.count("s3 cp") == 7, "its own scripts and the runtime's files, and no other"
    assert "stack-output:" in (plan / "cluster.yaml").read_text(), "the plan itself stays as it is"
    again = run(plan, "deploy.sh")
    assert again.returncode == 0, again.stderr
    assert "pcluster update-cluster" in (plan.parent / "account" / "calls").read_text()


def test_a_script_that_was_changed_since_is_not_uploaded(plan: Path) -> None:
    with (plan / "scripts" / "enroot.sh").open("a") as script:
        script.write("rm -rf /\n")
    done = run(plan, "deploy.sh")
    assert done.returncode == 1
    assert "not the file that was planned" in done.stderr
    assert not (plan.parent / "account" / "cluster").exists()


def test_it_undoes_what_it_made_and_keeps_data_unless_named(plan: Path) -> None:
    run(plan, "deploy.sh")
    done = run(plan, "undeploy.sh")
    assert done.returncode == 0, done.stderr
    assert not (plan.parent / "account" / "cluster").exists()
    assert "p5-reservation-lustre-fsx" in stacks(plan)
    assert "p5-reservation-network" in stacks(plan)
    assert "./undeploy.sh lustre-fsx deletes it" in done.stderr
    done = run(plan, "undeploy.sh", "lustre-fsx", "openzfs-home", "bucket")
    assert (done.returncode, stacks(plan)) == (0, set()), done.stderr
    assert not list((plan.parent / "account").glob("fs-*")), "a stack cannot go before its file system"
    assert "left: s3://the-bucket with its objects" in done.stderr


@pytest.mark.parametrize("script", ["deploy.sh", "undeploy.sh"])
def test_no_answer_is_not_taken_for_no_cluster(plan: Path, script: str) -> None:
    run(plan, "deploy.sh")
    before = stacks(plan)
    (plan.parent / "account" / "no-answer").touch()
    done = run(plan, script, "lustre-fsx", "openzfs-home", "bucket")
    assert done.returncode != 0
    assert stacks(plan) == before
    calls = (plan.parent / "account" / "calls").read_text()
    assert calls.count("create-cluster") == 1
    assert "delete-stack" not in calls


@pytest.mark.parametrize("word", ["--help", "lustre-fxs", "--dry-run"])
@pytest.mark.parametrize("golden", ["p5-reservation", "eks-g5", "batch-p4d", "hyperpod-p5", "hyperpod-eks-p5"])
def test_a_word_that_is_no_stack_removes_nothing(golden: str, word: str) -> None:
    """Nothing is asked of AWS either: the script knows its own words."""
    script = Path(__file__).parents[2] / "golden" / golden / "undeploy.sh"
    done = subprocess.run(["bash", str(script), word], capture_output=True, text=True, env={"PATH": "/nowhere:/bin"})
    assert done.returncode == 2
    assert "usage: ./undeploy.sh" in done.stderr
