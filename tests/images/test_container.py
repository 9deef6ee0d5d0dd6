"""Container images: every family and framework is judged by hadolint, shellcheck, CycloneDX's schema and our own check;
the build script runs against stand-ins of aws, docker and enroot."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from trainwright.catalog.families import families, family
from trainwright.catalog.versions import version_set, version_sets
from trainwright.check.engine import check
from trainwright.cli.image import command
from trainwright.errors import UserError
from trainwright.images.container import Container, container_files, record
from trainwright.images.families import choose, image_of_recipe
from trainwright.images.locks import FOLDER, lock_name, locked, pins
from trainwright.recipes.framework import framework as described
from trainwright.recipes.framework import frameworks
from trainwright.recipes.load import names, recipe

BIN = Path(sys.executable).parent


def every_image() -> Iterator[Container]:
    for one in families().values():
        for framework in one.frameworks.values():
            yield Container(one, framework, version_set(framework.set))
    for name in version_sets():
        yield Container(family("pytorch"), family("pytorch").framework("trainwright"), version_set(name))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every image in a folder of its own, and what the Dockerfiles have in common only once."""
    folders = {}
    for image in every_image():
        folder = tmp_path_factory.mktemp("image")
        for name, text in container_files(image)[0].items():
            (folder / name).write_text(text)
        folders[f"{image.family.name}-{image.framework.name}-{image.set.name}"] = folder
    return folders


def test_hadolint_and_shellcheck_find_nothing(written: dict[str, Path]) -> None:
    dockerfiles = [str(folder / "Dockerfile") for folder in written.values()]
    assert len(dockerfiles) >= 24
    done = subprocess.run([BIN / "hadolint", "--no-color", *dockerfiles], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    ignored = {rule for path in dockerfiles for rule in re.findall(r"hadolint ignore=(\S+)", Path(path).read_text())}
    assert ignored == {"DL3008"}  # packages of the distribution follow its security updates
    script = next(iter(written.values())) / "build.sh"  # the others differ in two quoted words
    done = subprocess.run([BIN / "shellcheck", str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_check_finds_nothing_in_any_image(written: dict[str, Path]) -> None:
    for name, folder in written.items():
        assert [str(finding) for finding in check([str(folder)]).findings] == [], name


def test_no_mount_of_a_cluster_hides_the_working_folder(written: dict[str, Path]) -> None:
    """enroot enters WORKDIR after the mounts and ends the container where it is missing: `/home` of the cluster hides
    what an image has there, and so does every other folder that a spec may mount."""
    mountable = ("/home", "/fsx", "/shared", "/scratch", "/data", "/mnt", "/efs", "/tmp")
    for name, folder in written.items():
        text = (folder / "Dockerfile").read_text()
        last = re.findall(r"(?m)^WORKDIR (\S+)$", text)[-1]
        [home] = re.findall(r"useradd .*--home-dir (\S+)", text)
        assert (last, home) == ("/trainer", "/trainer"), name  # not /trainwright: Batch puts a small tmpfs there
        assert not any(last.startswith(place) for place in mountable)


def test_the_bill_of_materials_is_cyclonedx_and_complete(written: dict[str, Path]) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    for name, folder in written.items():
        text = (folder / "sbom.cdx.json").read_text()
        assert validator.validate_str(text) is None, name
        listed = {component["purl"] for component in json.loads(text)["components"]}
        for line in (folder / "requirements.txt").read_text().splitlines():
            package, _, version = line.partition("==")
            assert f"pkg:pypi/{re.sub(r'[-_.]+', '-', package).lower()}@{version}" in listed, (name, line)
        assert any(purl.startswith("pkg:docker/") for purl in listed)
    ours = (written["pytorch-trainwright-default"] / "sbom.cdx.json").read_text()
    assert "pkg:generic/aws-efa-installer@1.47.0?download_url=" in ours
    assert validator.validate_str(ours.replace('"library"', '"no such type"', 1)) is not None  # the judge can object


def test_every_framework_is_pinned_down_to_its_last_package() -> None:
    files = set()
    for framework, torch in locked(families()):
        installed = dict(pins(framework, torch))
        for wanted in framework.packages:
            package, _, version = wanted.partition("==")
            package = package.partition("[")[0]
            assert installed[package] == (torch if wanted == "torch" else version or installed[package])
        assert len(installed) >= len(framework.packages)
        files.add(lock_name(framework, torch))
    assert files == {path.name for path in FOLDER.glob("*.txt")}


@pytest.mark.parametrize("name", version_sets())
def test_a_set_names_what_torch_brings_along(name: str) -> None:
    pinned = version_set(name)
    installed = dict(pins(family("pytorch").framework("ddp"), str(pinned.torch)))
    nccl = {version for package, version in installed.items() if package.startswith("nvidia-nccl-")}
    assert nccl == {str(pinned.nccl)}
    runtime = next(v for package, v in installed.items() if re.fullmatch(r"nvidia-cuda-runtime(-cu12)?", package))
    assert runtime.split(".")[:2] == str(pinned.cuda).split(".")[:2]


def test_the_same_image_is_the_same_bytes_and_another_set_another_tag() -> None:
    image = Container(*choose(None, None, None), version_set())
    first, second = container_files(image), container_files(image)
    assert first == second
    other = Container(image.family, image.framework, version_set("newest"))
    assert record(image, *first)["image"] != record(other, *container_files(other))["image"]


def test_a_recipe_has_its_framework_image() -> None:
    assert [part.name for part in image_of_recipe("llama3-8b")] == ["pytorch", "trainwright"]
    with pytest.raises(UserError, match="no recipe"):
        image_of_recipe('x"; rm -rf /; "')
    with pytest.raises(UserError, match="no container family 'pytorhc'"):
        choose(None, "pytorhc", None)
    with pytest.raises(UserError, match="family jax holds no framework"):
        choose(None, "jax", "nemo")
    for name in ("fairseq-roberta-large", "paxml-lm-cloud-2b"):
        with pytest.raises(UserError, match="no image of ours holds") as refused:
            image_of_recipe(name)
        assert "`container:`" in str(refused.value.fix)
    shown = CliRunner().invoke(command, ["container", "--help"]).output
    assert all(name in shown for name in families())


# paxml and fairseq need a jax and an omegaconf that no image of today can hold; their recipes take a container by name.
WITHOUT_IMAGE = {"paxml", "fairseq"}


def test_every_framework_of_the_recipes_has_an_image_of_its_version() -> None:
    for name in set(frameworks()) - WITHOUT_IMAGE:
        wanted = described(name)
        image = family(wanted.family).framework(wanted.image or name)
        stated = " ".join(
            [image.commit, image.base, family(wanted.family).base, *image.packages, str(version_set().torch)]
        )
        version = wanted.version.split()[-1]
        assert version.removeprefix("v") in stated or name in ("nemo1", "megatron-bridge", "optimum-neuron"), name
        if image.folder:
            words = [*wanted.entry, *(word for part in wanted.parts() for word in part.prepare)]
            assert any(image.folder in word for word in words), name
    for name in names():
        trainer = recipe(name).trainer
        if trainer != "trainwright" and trainer.framework not in {None, *WITHOUT_IMAGE}:
            assert image_of_recipe(name)[0].name == described(trainer.framework).family


def test_a_set_whose_driver_is_too_old_is_refused() -> None:
    jax = family("jax")
    with pytest.raises(UserError, match="CUDA 13 needs driver 580"):
        container_files(Container(family("pytorch"), family("pytorch").framework("ddp"), _old_driver()))
    assert container_files(Container(jax, jax.framework("jax"), version_set()))


def _old_driver():
    from dataclasses import replace

    return replace(version_set(), driver=version_set("previous").driver)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"repository": "a\nb"}, "ECR takes no repository"),
        ({"repository": "Team/Image"}, "ECR takes no repository"),
        ({"repository": "a;reboot"}, "ECR takes no repository"),
        ({"repository": "x" * 257}, "ECR takes no repository"),
        ({"region": "us-east-2; id"}, "is not a region"),
        ({"squash": "images"}, "is not a folder of the shared"),
        ({"squash": "/fsx\n/x"}, "is not a folder of the shared"),
    ],
)
def test_names_that_would_leave_their_place_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Container(family("jax"), family("jax").framework("jax"), version_set(), **values)


def test_the_verb_writes_again_and_refuses_other_folders(tmp_path: Path) -> None:
    folder = tmp_path / "it's a folder"
    run = CliRunner().invoke
    first = run(command, ["container", "--framework", "ddp", "--out", str(folder), "--json"], catch_exceptions=False)
    facts = json.loads(first.stdout)
    assert facts["versions"]["torch"] == str(version_set().torch)
    assert {path.name for path in folder.iterdir()} == {*facts["files"], "image.json"}
    (folder / "notes.txt").write_text("mine")
    again = run(command, ["container", "--framework", "ddp", "--set", "previous", "--out", str(folder)])
    assert again.exit_code == 0
    assert "nvidia/cuda:12.8.1" in (folder / "Dockerfile").read_text()
    assert (folder / "notes.txt").read_text() == "mine"
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "Dockerfile").write_text("FROM scratch\n")
    refused = run(command, ["container", "--out", str(foreign)])
    assert isinstance(refused.exception, UserError)
    assert "holds no image" in str(refused.exception)
    assert [path.name for path in foreign.iterdir()] == ["Dockerfile"]


STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >>"$CALLS"
case "$(basename "$0") $*" in
  "docker buildx imagetools inspect"*) echo "sha256:$(echo "$4" | cksum | cut -d' ' -f1)" ;;
  "aws sts"*) echo 123456789012 ;;
  "aws ecr describe-images"*) test -e "$CALLS.pushed" ;;
  "aws ecr describe-repositories"*) test -e "$CALLS.made" ;;
  "aws ecr create-repository"*) touch "$CALLS.made" ;;
  "aws ecr get-login-password"*) echo token ;;
  "docker login"*) cat >/dev/null ;;
  "docker push"*) touch "$CALLS.pushed" ;;
  "enroot import"*)
    host=123456789012.dkr.ecr.us-east-2.amazonaws.com
    test "$(cat "$ENROOT_CONFIG_PATH/.credentials")" = "machine $host login AWS password token" || exit 9
    stat -c %a "$ENROOT_CONFIG_PATH/.credentials" >>"$CALLS"
    mkdir "$CALLS.importing" || exit 8
    while [ ! -e "$CALLS.go" ]; do sleep 0.02; done
    rmdir "$CALLS.importing"
    echo squashed >"$3" ;;
esac
"""


@pytest.fixture
def cluster(tmp_path: Path) -> tuple[Path, Path, dict[str, str]]:
    """An image's folder, the list of calls that its script makes, and the environment with the stand-ins."""
    image = Container(family("jax"), family("jax").framework("jax"), version_set(), region="us-east-2",
                      squash=str(tmp_path / "fsx $(id)' images"))  # fmt: skip
    for name, text in container_files(image)[0].items():
        (tmp_path / name).write_text(text)
    for program in ("aws", "docker", "enroot"):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / program).write_text(STAND_IN)
        (tmp_path / "bin" / program).chmod(0o755)
    calls = tmp_path / "calls"
    return tmp_path, calls, {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "CALLS": str(calls)}


def test_the_script_builds_and_pushes_a_tag_once(cluster: tuple[Path, Path, dict[str, str]]) -> None:
    folder, calls, env = cluster
    script = ["bash", str(folder / "build.sh")]
    assert subprocess.run(script, env=env, capture_output=True, check=False).returncode == 0
    # bash 3.2 of macOS takes an empty array for an unset variable
    assert re.findall(r' "\$\{secret\[@\]\}" ', (folder / "build.sh").read_text()) == []
    text = calls.read_text()
    assert "docker buildx build --load --platform linux/amd64 --provenance=false --build-arg BASE=docker.io/" in text
    assert " --tag trainwright/jax-jax:default-" in text
    assert "--image-tag-mutability IMMUTABLE --image-scanning-configuration scanOnPush=true" in text
    assert text.count("docker push 123456789012.dkr.ecr.us-east-2.amazonaws.com/trainwright/jax-jax:default-") == 1
    again = subprocess.run([*script, "push"], env=env, capture_output=True, text=True, check=False)
    assert "is in the registry already" in again.stderr
    assert calls.read_text().count("docker push") == 1
    wrong = subprocess.run([*script, "remove"], env=env, capture_output=True, text=True, check=False)
    assert (wrong.returncode, "./build.sh squash" in wrong.stderr) == (2, True)


def test_a_base_keeps_the_digest_of_the_first_build(cluster: tuple[Path, Path, dict[str, str]]) -> None:
    folder, calls, env = cluster
    for _ in range(2):
        done = subprocess.run(["bash", str(folder / "build.sh"), "build"], env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    text = calls.read_text()
    assert text.count("imagetools inspect docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04") == 1
    assert text.count("imagetools inspect") == 2  # the base, and the image that native code is compiled in
    locked = dict(line.split() for line in (folder / "bases.lock").read_text().splitlines())
    digest = locked["docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04"]
    assert text.count(f"BASE=docker.io/nvidia/cuda:13.0.2-base-ubuntu24.04@{digest}") == 2
    assert text.count(f"--label org.opencontainers.image.base.digest={digest}") == 2
    (folder / "bases.lock").unlink()
    (folder / "bin/docker").write_text("#!/bin/sh\nexit 0\n")  # a registry without an answer
    done = subprocess.run(["bash", str(folder / "build.sh"), "build"], env=env, capture_output=True, text=True)
    assert (done.returncode, "names no digest" in done.stderr) == (1, True)


def test_an_image_that_compiles_at_run_time_has_a_compiler(written: dict[str, Path]) -> None:
    """Triton and DeepSpeed build modules in C and C++ when a job starts, against Python's headers."""
    for name in ("deepspeed-default", "torchtitan-default", "trl-default", "trainwright-newest"):
        text = (written[f"pytorch-{name}"] / "Dockerfile").read_text()
        [installed] = re.findall(r"install -y --no-install-recommends (ca-certificates curl .*) \\", text)
        assert {"g++", "python3-dev"} <= set(installed.split()), name
        # the stage that installs them is below the one that runs
        parents = {stage: parent for parent, stage in re.findall(r"(?m)^FROM (\S+) AS (\S+)$", text)}
        assert (parents["runtime"], parents["fabric"]) == ("fabric", "system")
        # a job's files are written there by the user that runs
        assert "install -d -o trainer -g trainer /trainwright /trainwright/code" in text
    assert "torchao==" in (written["pytorch-torchtitan-default"] / "requirements.txt").read_text()  # float8


def test_maxtext_runs_in_an_image_that_holds_all_it_imports(written: dict[str, Path]) -> None:
    """TensorFlow, pathwaysutils and Transformer Engine: NVIDIA's image of one day has them, and MaxText installed."""
    known = described("maxtext")
    [base] = re.findall(r"(?m)^ARG BASE=(\S+)$", (written["maxtext-maxtext-default"] / "Dockerfile").read_text())
    assert re.fullmatch(r"ghcr\.io/nvidia/jax:maxtext-\d{4}-\d\d-\d\d", base)
    assert known.container == base


def test_neuron_programs_find_what_they_import(written: dict[str, Path]) -> None:
    """The Llama scripts of neuronx-distributed import modules of the folder above theirs; optimum-neuron alone brings
    neither TRL, in the one version that it takes, nor PEFT."""
    for name in ("neuronx-distributed", "neuronx-distributed-pp"):
        above = str(Path(described(name).entry[-1]).parent.parent)
        assert f"echo {above} > " in (written["neuron-neuronx-distributed-default"] / "Dockerfile").read_text()
    needed = (written["neuron-neuronx-distributed-default"] / "requirements.txt").read_text()
    assert {"transformers", "datasets", "tensorboard"} <= set(re.findall(r"(?m)^([a-z-]+)==", needed))
    installed = (written["neuron-optimum-neuron-default"] / "requirements.txt").read_text().split()
    assert {"optimum-neuron==0.3.0", "trl==0.11.4", "peft==0.16.0"} <= set(installed)


def test_two_nodes_import_one_image_once(cluster: tuple[Path, Path, dict[str, str]]) -> None:
    folder, calls, env = cluster
    command = ["bash", str(folder / "build.sh"), "squash"]
    started = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    deadline = time.monotonic() + 30
    while not Path(f"{calls}.importing").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    Path(f"{calls}.go").touch()
    answers = [process.communicate(timeout=30) for process in started]
    assert [process.returncode for process in started] == [0, 0], answers
    [file] = {out for out, _ in answers}
    assert Path(file.strip()).read_text() == "squashed\n"
    text = calls.read_text()
    assert text.count("enroot import") == 1
    assert "\n600\n" in text  # the registry's token is readable by its user only
    assert sorted(path.suffix for path in Path(file.strip()).parent.iterdir() if path.is_file()) == [".lock", ".sqsh"]
