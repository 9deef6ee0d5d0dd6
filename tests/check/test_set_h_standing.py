"""Files that nobody runs as they are give notes: forms, and what a newer file supersedes. Files in use keep their
levels."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwright.catalog import versions
from trainwright.catalog.versions import kubernetes_versions
from trainwright.check.engine import check

JOB = "#!/bin/bash\n#SBATCH --time=12h\n#SBATCH --gres=gpu:1\n{}\n"
WORKS = JOB.format("module load cuda\nsource venv/bin/activate\nsrun python train.py --epochs 3")
CLUSTER = (
    "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata: {name: gpu, region: us-east-2, version: '1.21'}\n"
)


def levels(folder: Path, name: str) -> set[str]:
    return {finding.level for finding in check([str(folder / name)]).findings}


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "srun python your_script.py",
        "python path/to/train.py --data x",
        "srun <your command>",
        "<actual code to run>",
        "module load cuda\n# Put your commands here",
        "python my_script.py",
        "mpirun -np 4 ...",
    ],
)
def test_a_form_has_notes_only(repository: Path, command: str) -> None:
    write(repository, **{"job.sbatch": JOB.format(command)})
    assert levels(repository, "job.sbatch") == {"info"}


@pytest.mark.parametrize(
    "command",
    [
        "srun python train.py --data /path/to/data",  # filled in or not, sbatch refuses the time
        "# your command below\nsrun python train.py",
        "srun python train.py --account <ACCOUNT>",
        "cat <<EOF > a.txt\n<script>\nEOF\nsrun python train.py",
        "srun python train.py <input.txt> output.txt",
        "python my_script.py",  # it is there
        "go vet ./... && srun python train.py",
    ],
)
def test_a_script_that_starts_something_keeps_its_errors(repository: Path, command: str) -> None:
    write(repository, **{"job.sbatch": JOB.format(command), "my_script.py": "import torch\n"})
    assert "error" in levels(repository, "job.sbatch")


@pytest.mark.parametrize("name", ["slurm_template.sbatch", "templates/job.sbatch"])
def test_a_template_by_its_name(repository: Path, name: str) -> None:
    write(repository, **{name: WORKS})
    assert levels(repository, name) <= {"info"}


@pytest.mark.parametrize(
    ("line", "level"),
    [("NCCL_SOCKET_IF_NAME=eth0", "warning"), ("NCCL_SOCKET_IF_NAME=<your-interface>", "info")],
)
def test_what_is_to_be_filled_in(repository: Path, line: str, level: str) -> None:
    text = f"#!/bin/bash\n#SBATCH --nodes=2\nexport {line.replace('<', chr(34) + '<').replace('>', '>' + chr(34))}\n"
    write(repository, **{"job.sbatch": text + "srun python train.py\n"})
    assert levels(repository, "job.sbatch") <= {level, "info"}


@pytest.mark.parametrize(
    "name",
    [
        "old/job.sbatch",
        "scripts/archive/gpu/job.sbatch",
        "old_scripts/job.sbatch",
        "deprecated/job.sbatch",
        "backup/job.sbatch",
        "job_old.sbatch",
        "job_deprecated.sbatch",
        "old-job.sbatch",
    ],
)
def test_what_was_put_aside(repository: Path, name: str) -> None:
    write(repository, **{name: WORKS})
    assert levels(repository, name) == {"info"}
    write(repository, **{"README.md": f"Run `sbatch {name}`.\n"})
    assert "error" in levels(repository, name)


@pytest.mark.parametrize(
    "name",
    ["gold/job.sbatch", "threshold.sbatch", "run_old_faithful.sbatch", "holdout/job.sbatch", "scaffold.sbatch"],
)
def test_what_only_sounds_old(repository: Path, name: str) -> None:
    write(repository, **{name: WORKS})
    assert "error" in levels(repository, name)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("train.sbatch", "train_v2.sbatch"),
        ("train_v2.sbatch", "train_v3.sbatch"),
        ("job copy.sbatch", "job.sbatch"),
        ("job (1).sbatch", "job.sbatch"),
        ("job_backup.sbatch", "job.sbatch"),
    ],
)
def test_a_newer_version_lies_beside(repository: Path, older: str, newer: str) -> None:
    write(repository, **{older: WORKS})
    assert "error" in levels(repository, older)
    write(repository, **{newer: WORKS.replace("3", "4")})
    assert levels(repository, older) == {"info"}
    assert "error" in levels(repository, newer)
    write(repository, **{"README.md": f"sbatch {older} or sbatch {newer}\n"})
    assert "error" in levels(repository, older)


def test_another_version_is_another_job(repository: Path) -> None:
    other = "#!/bin/bash\n#SBATCH -N 4\nexport A=1\nexport B=2\nmpirun ./solver input.nml\n"
    write(repository, **{"train.sbatch": WORKS, "train_v2.sbatch": other})
    assert "error" in levels(repository, "train.sbatch")


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("cluster.yaml", "error"),
        ("backup/cluster.yaml", "error"),
        ("legacy/cluster.yaml", "info"),
        ("archive/cluster.yaml", "info"),
    ],
)
def test_clusters_that_were_put_aside(repository: Path, name: str, level: str) -> None:
    write(repository, **{name: CLUSTER})
    assert level in levels(repository, name)
    assert ("error" in levels(repository, name)) == (level == "error")


@pytest.mark.parametrize(
    ("names", "level"),
    [
        ("gpu my-keys", "warning"),
        ("gpu <your-key>", "warning"),  # one value may be left out on purpose
        ("YourEKS-ClusterName YourEKS-KEY", "info"),
        ("<CLUSTER_NAME> <your-key>", "info"),
    ],
)
def test_the_version_of_a_form_is_chosen_anew(tmp_path: Path, names: str, level: str) -> None:
    extended = (str(row.version) for row in kubernetes_versions() if row.support(versions.today()) == "extended")
    name, key = names.split()
    text = (
        f"apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata:\n  name: '{name}'\n  region: us-east-2\n"
        f"  version: '{next(extended)}'\nmanagedNodeGroups:\n- name: cpu\n  instanceType: m5.large\n"
        f"  ssh: {{publicKeyName: '{key}'}}\n"
    )
    write(tmp_path, **{"cluster.yaml": text})
    findings = check([str(tmp_path / "cluster.yaml")]).findings
    assert [finding.level for finding in findings if finding.code == "EKS001"] == [level]


def test_secrets_and_unreadable_files(repository: Path) -> None:
    token = "hf_" + "QzLmVtKxRbWnYcJdGpHsUeFoTiAkXyNwBv"
    write(repository, **{"old/job.sbatch": f"#!/bin/bash\nexport HF_TOKEN={token}\nsrun python train.py\n"})
    assert levels(repository, "old/job.sbatch") & {"error", "warning"}
    torn = CLUSTER.replace("kind", "\tkind")
    write(repository, **{"old/eks.yaml": torn, "new/eks.yaml": torn})
    assert {f.level for f in check([str(repository / "old")]).findings if f.code == "TW001"} == {"info"}
    assert {f.level for f in check([str(repository / "new")]).findings} == {"warning"}


def test_without_a_repository_only_the_own_folder_counts(tmp_path: Path) -> None:
    write(tmp_path, **{"old/scripts/job.sbatch": WORKS, "old/job.sbatch": WORKS})
    assert "error" in levels(tmp_path, "old/scripts/job.sbatch")
    assert levels(tmp_path, "old/job.sbatch") == {"info"}
