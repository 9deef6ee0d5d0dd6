"""A container image as a folder of files: Dockerfile, requirements, build script and the list of what is in it. All of
it is computed from a family, a framework and a version set, so the same three give the same bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright import __version__
from trainwright.catalog.families import Family, FrameworkImage
from trainwright.catalog.versions import VersionSet, conflicts, parse_version, software_title
from trainwright.errors import UserError
from trainwright.folders import digests
from trainwright.images.families import OURS
from trainwright.images.locks import GPU_ONLY, pins, torches
from trainwright.images.sbom import Component, bill_of_materials
from trainwright.node_side import node_archive
from trainwright.shell_templates import shell_environment

TEMPLATES = Path(__file__).with_name("templates")
RECORD = "image.json"
SBOM = "sbom.cdx.json"
# EC2 user guide, "Get started with EFA": the fingerprint of the key that signs the installer.
EFA_KEY = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
LIBRARIES = (
    "/opt/amazon/efa/lib", "/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/openmpi5/lib", "/opt/gdrcopy/lib",
)  # fmt: skip
SYSTEM = ("ca-certificates", "curl", "gnupg")
FABRIC = ("efa", "libfabric", "ofi_nccl", "gdrcopy", "nccl_tests")  # what an image for NVIDIA GPUs takes from the set
MISSING = (
    "import sys; from importlib.util import find_spec; "
    "missing = [name for name in sys.argv[1:] if not find_spec(name)]; "
    'sys.exit(f"not installed: {missing}" if missing else 0)'
)
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*(?:/[a-z0-9]+(?:[._-][a-z0-9]+)*)*")
REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")


@dataclass(frozen=True, slots=True)
class Container:
    """What to write."""

    family: Family
    framework: FrameworkImage
    set: VersionSet
    repository: str = ""  # in ECR; empty: by family and framework
    region: str = ""
    squash: str = "/fsx/images"

    def __post_init__(self) -> None:
        name = self.name
        if not 2 <= len(name) <= 256 or not _REPOSITORY.fullmatch(name):
            raise UserError(
                f"ECR takes no repository of the name {name!r}",
                fix="small letters, digits, and . _ - / between them, 2 to 256 in all",
            )
        if self.region and not REGION.fullmatch(self.region):
            raise UserError(f"{self.region!r} is not a region", fix="write it like us-east-2")
        if not self.squash.startswith("/") or any(not letter.isprintable() for letter in self.squash):
            raise UserError(
                f"{self.squash!r} is not a folder of the shared file system", fix="write it like /fsx/images"
            )

    @property
    def name(self) -> str:
        return self.repository or f"trainwright/{self.family.name}-{self.framework.name}"

    @property
    def own_python(self) -> bool:
        """Whether everything is installed by us; NVIDIA's and AWS's images bring their own Python and torch."""
        return self.family.nccl == "wheel"

    @property
    def torch(self) -> str:
        """The version that is installed; empty where the base brings it or none is needed."""
        versions = torches(self.framework) if self.own_python else [""]
        return versions[0] if len(versions) == 1 else str(self.set.torch)

    @property
    def base(self) -> str:
        return (self.framework.base or self.family.base).format(**self._places())

    @property
    def build(self) -> str:
        """The image that native code is compiled in; a framework on another base is compiled in that."""
        return (self.framework.base or self.family.build).format(**self._places())

    def _places(self) -> dict[str, str]:
        return {name: str(version) for name, version in self.set.versions().items()}

    def packages(self) -> tuple[tuple[str, str], ...]:
        """Every Python package that is installed, with its version."""
        if self.own_python:
            return pins(self.framework, self.torch)
        return tuple((name, version) for name, _, version in (one.partition("==") for one in self.framework.packages))

    def versions(self) -> dict[str, str]:
        """What the image holds of the set, for labels and the record; NCCL and CUDA as the framework's packages bring
        them."""
        installed = dict(self.packages())
        nccl = next((version for name, version in installed.items() if name.startswith("nvidia-nccl-")), None)
        known: dict[str, str | None] = {"cuda": str(self.set.cuda) if self.own_python else None, "nccl": nccl}
        known["torch"] = installed.get("torch")
        if self.family.accelerator == "nvidia":
            known |= {
                name: str(getattr(self.set, name)) for name in ("efa", "libfabric", "ofi_nccl", "gdrcopy", "nccl_tests")
            }
        return {name: version for name, version in known.items() if version}


def container_files(image: Container) -> tuple[dict[str, str], dict[str, bytes]]:
    """The folder's texts and archives, without its record. A set whose driver cannot run the image is refused."""
    require_fit(image)
    archives = {"trainwright.zip": node_archive()} if image.framework.name == OURS else {}
    files = {
        "requirements.txt": _requirements(image.packages()),
        ".dockerignore": "*\n!requirements*.txt\n!trainwright.zip\n!sbom.cdx.json\n",
    }
    if image.torch:
        files["requirements-cpu.txt"] = _requirements((n, v) for n, v in image.packages() if not GPU_ONLY.match(n))
    files[SBOM] = json.dumps(bill_of_materials(image.name, components(image)), indent=2) + "\n"
    files["Dockerfile"] = dockerfile(image)
    values = {
        "repository": image.name, "region": image.region, "squash": image.squash, "cpu": bool(image.torch),
        "base": image.base, "compiled_in": image.build if image.family.accelerator == "nvidia" else "",
    }  # fmt: skip
    name = tag(files, archives, image)
    files["build.sh"] = _engine().get_template("build.sh").render(name=image.name, tag=name, **values)
    return files, archives


def _requirements(packages: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in packages)


def require_fit(image: Container) -> None:
    """Refuse an image that the set's own nodes cannot run."""
    versions = {name: parse_version(text) for name, text in image.versions().items()}
    versions |= {"driver": image.set.driver, "efa_driver": image.set.efa_driver}
    wrong = [one for one in conflicts(versions) if one.level == "error"]
    if wrong:
        raise UserError(f"set {image.set.name} cannot run this image: {wrong[0].why}", fix="choose another --set")


def tag(files: Mapping[str, str], archives: Mapping[str, bytes], image: Container) -> str:
    """The set and what the image is made of: another content is another tag, and the same content the same one."""
    content = json.dumps(digests(files, archives), sort_keys=True)
    return f"{image.set.name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def dockerfile(image: Container) -> str:
    fabric = image.family.accelerator == "nvidia"
    own = image.own_python
    stages = ["system", *(["python"] if own else []), *(["source"] if image.framework.git else []), "cpu"]
    stages += ["fabric", "tools", "runtime"] if fabric else ["runtime"]
    text: str = _engine().get_template("Dockerfile").render(
        title=image.family.title, framework=image.framework, set=image.set, base=image.base,
        build=image.build if fabric else "", stages=", ".join(stages), own_python=own, fabric=fabric,
        system_packages=" ".join([*SYSTEM, *(["python3", "python3-venv"] if own else []), *image.family.system]),
        packages=image.packages(), node_side=image.framework.name == OURS, content=_content(image), efa_key=EFA_KEY,
        nccl_home="/opt/nccl" if own else "/usr", labels=_labels(image),
        library_path=":".join([*LIBRARIES, *(["/opt/nccl/lib"] if own else [])]),
    )  # fmt: skip
    return text


def _content(image: Container) -> str:
    """What the image holds beside its system: the same in the CPU form and in the full one."""
    lines = []
    if image.own_python:
        lines += ["COPY --from=python /opt/venv /opt/venv", "ENV PATH=/opt/venv/bin:${PATH}"]
    elif image.packages():
        lines += [
            "COPY requirements.txt /tmp/requirements.txt",
            "# The base brings PyTorch and says, by its constraints, what must not be replaced.",
            "RUN --mount=type=secret,id=pip,target=/etc/pip.conf \\",
            "    pip install --no-cache-dir --requirement /tmp/requirements.txt",
        ]
    if image.framework.name == OURS:
        lines += ["COPY --from=python /opt/trainwright /opt/trainwright", "ENV PYTHONPATH=/opt/trainwright"]
    if image.framework.git:
        folder = image.framework.folder
        lines += [f"COPY --from=source --chown=trainer:trainer {folder} {folder}"]
    if image.framework.path:  # not by PYTHONPATH, which a job sets
        site = '"$(python3 -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')"'
        lines += [f"RUN echo {image.framework.path} > {site}/framework.pth"]
    if image.framework.imports:  # looked up and not imported: a machine that builds has no GPU
        lines += [
            "# Stop here where a program of the recipes would miss a module.",
            f"RUN python3 -c '{MISSING}' {' '.join(image.framework.imports)}",
        ]
    return "\n".join([*lines, f"COPY {SBOM} /opt/{SBOM}"])


def _labels(image: Container) -> str:
    labels = {
        "org.opencontainers.image.title": image.name,
        "org.opencontainers.image.base.name": image.base.partition("@")[0],
        "trainwright.version": __version__,
        "trainwright.family": image.family.name,
        "trainwright.framework": image.framework.name,
        "trainwright.set": image.set.name,
        "trainwright.set.date": image.set.date,
        **{f"trainwright.{name}": version for name, version in image.versions().items()},
    }
    return " \\\n    ".join(f'{name}="{value}"' for name, value in labels.items())


def components(image: Container) -> list[Component]:
    """Everything that the image pins, for its bill of materials."""
    parts = [Component.image(image.base)]
    parts += [Component.pypi(name, version) for name, version in image.packages()]
    if image.framework.git:
        parts.append(Component.repository(image.framework.git, image.framework.commit))
    installed = image.versions()
    if "efa" in installed:
        address = f"https://efa-installer.amazonaws.com/aws-efa-installer-{installed['efa']}.tar.gz"
        parts.append(Component.download("aws-efa-installer", installed["efa"], address))
        parts += [Component.generic(software_title(name), installed[name]) for name in ("libfabric", "ofi_nccl")]
        for name in ("gdrcopy", "nccl_tests"):
            parts.append(
                Component.repository(f"https://github.com/NVIDIA/{name.replace('_', '-')}", f"v{installed[name]}")
            )
    return parts


def record(image: Container, files: Mapping[str, str], archives: Mapping[str, bytes]) -> dict[str, Any]:
    """The facts of an image, for image.json and `--json`."""
    without = {name: text for name, text in files.items() if name != "build.sh"}
    return {
        "trainwright": __version__,
        "kind": "container",
        "family": image.family.name,
        "framework": image.framework.name,
        "set": {"name": image.set.name, "date": image.set.date, "source": image.set.source},
        "base": image.base,
        "image": f"{image.name}:{tag(without, archives, image)}",
        "versions": image.versions(),
        "files": digests(files, archives),
    }


def _engine() -> Any:
    return shell_environment(TEMPLATES, trim_blocks=True, lstrip_blocks=True)
