"""What `check` reads: bounded input, JSON by JSON's rules, templates of envsubst, Jinja and Helm."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainwright.check import reasons
from trainwright.check.engine import Selection, check
from trainwright.check.readers.recognise import read_file
from trainwright.check.readers.templates import filled, without_suffix
from trainwright.spec.source import SourceError

POD = """apiVersion: v1
kind: Pod
metadata:
  name: {{ include "chart.name" . }}
  labels:
    {{- include "chart.labels" . | nindent 4 }}
spec:
  {{- if .Values.hostIPC }}
  hostIPC: true
  {{- else }}
  hostIPC: false
  {{- end }}
  containers:
    - name: train
      image: "{{ .Values.image }}:{{ .Values.tag }}"
      command: [torchrun, --nproc_per_node=8, train.py]
      resources:
        limits:
          nvidia.com/gpu: 4
      {{- with .Values.mounts }}
      volumeMounts:
        {{- toYaml . | nindent 8 }}
      {{- end }}
"""


def codes(path: Path, *select: str) -> list[str]:
    return [f"{f.code} {f.span.line}" for f in check([str(path)], Selection(select=select)).findings]


def test_a_helm_template_is_read_with_its_values_unknown(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(POD)
    assert codes(path, "JOB001") == ["JOB001 16"]
    assert codes(path, "CFG001") == []
    text = filled(POD)
    assert [len(line) for line in text.split("\n")] == [len(line) for line in POD.split("\n")]
    assert "hostIPC: true" in text
    assert "hostIPC: false" not in text


def test_cloudformation_references_are_not_a_template() -> None:
    text = "Value: '{{resolve:ssm:/aws/service/ami}}'"
    assert filled(text) == text


def test_a_jinja_script_is_followed_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "train.sbatch.j2"
    path.write_text(
        "#!/bin/bash\n#SBATCH --nodes={{ nodes }}\n{% if exclusive %}\n#SBATCH --exclusive\n{% endif %}\n"
        "srun torchrun --nproc_per_nodes=8 train.py\n"
    )
    assert codes(path, "JOB013") == ["JOB013 6"]


@pytest.mark.parametrize(
    ("name", "inner"),
    [("a.yaml-template", "a.yaml"), ("a.yml.tpl", "a.yml"), ("a.sh.j2", "a.sh"), ("vpc.template", "vpc.template"),
     ("plain.yaml", "plain.yaml"), ("x.yaml.in", "x.yaml")],
)  # fmt: skip
def test_template_names(name: str, inner: str) -> None:
    assert without_suffix(name) == inner


def test_a_folder_opens_templates(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml-template").write_text(
        "Region: ${REGION}\nImage: {Os: x}\nScheduling: {Scheduler: slurm}\n"
    )
    assert check([str(tmp_path)]).files == 1


def test_json_is_read_as_json() -> None:
    file = read_file(
        "cluster-config.json", '{"ClusterName": "a\\/b",\t"InstanceGroups": [\n {"InstanceGroupName": "x"}]}'
    )
    assert file is not None
    assert file.clusters[0].name is not None
    assert file.clusters[0].name.value == "a/b"
    assert file.clusters[0].queues[0].span.line == 2
    with pytest.raises(SourceError, match="written twice") as caught:
        read_file("a.json", '{"a": 1,\n "a": 2}')
    assert caught.value.span.line == 2
    with pytest.raises(SourceError, match="comma or }"):
        read_file("a.json", '{"InstanceGroups": [] "b": 1}')


def test_json_positions_are_those_of_yaml() -> None:
    from trainwright.check.readers.json_source import parse_json
    from trainwright.spec.source import parse

    text = '{"a": [1, {"b": "x"}, true],\n  "c": null, "d": -1.5e3}'
    ours, yaml = parse_json(text, "x"), parse(text, "x")[0]
    assert ours.plain() == yaml.plain()
    assert [(n.span, n.text) for n in ours.walk() if n.is_scalar] == [
        (n.span, n.text) for n in yaml.walk() if n.is_scalar
    ]
    assert ours.keys == yaml.keys


def test_a_pipe_without_a_writer_is_refused_and_skipped_in_a_folder(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert [(f.code, "named pipe" in f.message) for f in check([str(pipe)]).findings] == [("TW001", True)]
    assert check([str(tmp_path)]).files == 0
    assert [f.code for f in check(["/dev/zero"]).findings] == ["TW001"]


def test_a_pipe_beside_a_job_is_not_read(tmp_path: Path) -> None:
    """A rule that looks for the script that builds a job's image would wait for its writer for ever."""
    os.mkfifo(tmp_path / "build.sh")
    job = tmp_path / "run.sbatch"
    job.write_text("#!/bin/bash\n#SBATCH --nodes=1\nsrun --container-image=$REGISTRY/llama:v1 python train.py\n")
    done = subprocess.run([sys.executable, "-m", "trainwright", "check", str(job)], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_endless_standard_input_ends() -> None:
    script = "import sys; from trainwright.cli.main import cli; cli(['check', '-'])"
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run([sys.executable, "-c", script], stdin=endless, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "at most that much is read" in done.stdout


def test_a_shell_pipe_is_read() -> None:
    script = "#!/bin/bash\\ntorchrun --nproc_per_nodes=8 t.py\\n"
    command = f"{sys.executable} -m trainwright check --select JOB013 <(printf '{script}')"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "JOB013" in done.stdout


def test_a_huge_file_is_refused_quickly(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_text("\n".join(f"key{n}: value{n}" for n in range(280_000)))
    started = time.process_time()
    assert [f.code for f in check([str(path)]).findings] == ["TW001"]
    assert time.process_time() - started < 5


def test_a_key_that_is_written_twice_has_a_reason_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "accelerate_config.yaml"
    path.write_text("compute_environment: LOCAL_MACHINE\ndistributed_type: NO\ndistributed_type: FSDP\n")
    finding = check([str(path)]).findings[0]
    assert (finding.code, finding.span.line, finding.why) == ("TW001", 3, reasons.REPEATED_KEY)


CONFLICT = "<<<<<<< HEAD\n{0}=======\n{0}>>>>>>> other\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.sbatch", "#!/bin/bash\n" + CONFLICT.format("srun python train.py\n")),
        ("job.yaml", "kind: Job\n" + CONFLICT.format("apiVersion: batch/v1\n")),
        ("train.py", "dist.init_process_group()\n" + CONFLICT.format("loss.backward()\n")),
    ],
)
def test_an_unresolved_merge_is_named(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    findings = [f for f in check([str(path)]).findings if f.code == "TW001"]
    assert [(f.span.line, f.why) for f in findings] == [(2, reasons.MERGE_CONFLICT)]


@pytest.mark.parametrize("text", ["cat <<<<<<< x\n", "<<<<<<< a\n", "# =======\n", "=======\n<<<<<<< a\n>>>>>>> b\n"])
def test_what_only_resembles_a_marker_is_no_merge(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.sbatch"
    path.write_text(f"#!/bin/bash\n{text}srun python train.py\n")
    assert [f for f in check([str(path)]).findings if f.code == "TW001"] == []
