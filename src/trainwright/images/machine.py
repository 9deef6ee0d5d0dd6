"""A machine image as a folder of files: a Packer template with Ansible roles, and for ParallelCluster the configuration
of `pcluster build-image` as the other way to the same image. Both come from one version set."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainwright import __version__
from trainwright.catalog.tables import shipped_toml
from trainwright.catalog.versions import VersionSet
from trainwright.errors import UserError, did_you_mean
from trainwright.folders import digests
from trainwright.health import compatibility
from trainwright.images.container import EFA_KEY, REGION, TEMPLATES
from trainwright.shell_templates import ScriptText, shell_environment

ROLES = Path(__file__).with_name("ansible")
RECORD = "image.json"
ANSIBLE = "ansible-core==2.19.14"
VOLUME_GIB = 100  # the base images' 45 and room for what is installed
OWN = "trainwright:"
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.*'()-]+)*")
_PARENT = re.compile(r"ami-[0-9a-f]{8,17}|arn:aws[a-z-]*:imagebuilder:[a-z0-9-]+:[a-z0-9]+:image/[\w.-]+/[\w.]+(/\d+)?")


@dataclass(frozen=True, slots=True)
class Machine:
    """What to write."""

    base: str
    os: str
    set: VersionSet
    region: str = "us-east-2"
    parent: str = ""  # of `pcluster build-image`; empty: EC2 Image Builder's own image of that system
    bucket: str = ""  # where `pcluster build-image` finds the roles; empty: it applies none

    def __post_init__(self) -> None:
        systems = _facts(self.base)["os"]
        if self.os not in systems:
            raise UserError(f"{self.base} has no image for {self.os!r}", fix=f"one of {', '.join(systems)}")
        for value, shape, what, example in (
            (self.region, REGION, "a region", "us-east-2"),
            (self.parent, _PARENT, "a parent image", "ami-0123456789abcdef0"),
            (self.bucket, _BUCKET, "an S3 address", "s3://my-bucket/images"),
        ):
            if value and not shape.fullmatch(value):
                raise UserError(f"{value!r} is not {what}", fix=f"write it like {example}")
        if (self.parent or self.bucket) and self.base != "parallelcluster":
            raise UserError("--parent and --bucket are for `pcluster build-image`", fix="use --base parallelcluster")

    @property
    def facts(self) -> dict[str, Any]:
        return _facts(self.base)

    @property
    def name(self) -> str:
        return f"trainwright-{self.base}-{self.os}-{self.set.name}"

    @property
    def source_name(self) -> str:
        """The name of the base image, with a star for its date."""
        name: str = self.facts["os"][self.os]["name"]
        return name.format(**{key: str(version) for key, version in self.set.versions().items()})


def _facts(base: str) -> dict[str, Any]:
    bases = {name: row for name, row in shipped_toml("machine_bases.toml").items() if isinstance(row, dict)}
    if base not in bases:
        fix = did_you_mean(base, bases) or f"one of {', '.join(bases)}"
        raise UserError(f"no machine base {base!r}", fix=fix)
    return bases[base]


def first_system(base: str) -> str:
    """The operating system of a base where the user names none."""
    systems: dict[str, Any] = _facts(base)["os"]
    return next(iter(systems))


def machine_files(image: Machine) -> dict[str, str]:
    """The folder's texts, without its record."""
    files = {f"ansible/{path.relative_to(ROLES)}": path.read_text(encoding="utf-8") for path in _role_files()}
    files["ansible/group_vars/all.yml"] = _yaml(variables(image), "What the roles are given, from the version set.")
    values = _values(image)
    files["image.pkr.hcl"] = _engine().get_template("image.pkr.hcl").render(values)
    files["build.sh"] = _engine().get_template("machine-build.sh").render(values)
    if image.base == "parallelcluster":
        comment = f"For `pcluster build-image` of ParallelCluster {image.set.parallelcluster}."
        files["build-image.yaml"] = _yaml(build_image(image), comment)
        if image.bucket:
            files["apply.sh"] = _engine().get_template("apply.sh").render(values)
    return files


def _role_files() -> list[Path]:
    return sorted(path for path in ROLES.rglob("*") if path.is_file() and path.suffix in (".yml", ".j2"))


def variables(image: Machine) -> dict[str, Any]:
    """The variables of the roles."""
    facts = image.facts
    return {
        "version_set": {
            "name": image.set.name,
            "date": image.set.date,
            **{name: str(version) for name, version in image.set.versions().items()},
        },
        "accelerator": facts["accelerator"],
        "containers": facts["containers"],
        "efa_installer": str(image.set.efa),
        "efa_address": "https://efa-installer.amazonaws.com",
        "efa_key": EFA_KEY,
        "nvidia_least_driver": least_driver(image.set),
        "enroot_in_base": image.base == "parallelcluster",
        "enroot_scratch": facts["scratch"],
    }


def least_driver(pinned: VersionSet) -> str:
    """The oldest driver that runs the set's CUDA, from the compatibility table."""
    known = {"cuda_runtime": str(pinned.cuda)}
    rows = [row for row in compatibility.table() if row.requires.name == "driver"]
    return next(row.requires.value for row in rows if all(condition.holds(known) for condition in row.when))


def build_image(image: Machine) -> dict[str, Any]:
    """The configuration of `pcluster build-image`. Packages of the system stay as the parent has them: a newer kernel
    would outrun the Lustre client."""
    managed = image.facts["os"][image.os]["parent"]
    parent = image.parent or f"arn:aws:imagebuilder:{image.region}:aws:image/{managed}/x.x.x"
    build: dict[str, Any] = {
        "InstanceType": image.facts["instance"],
        "ParentImage": parent,
        "UpdateOsPackages": {"Enabled": False},
        "Imds": {"ImdsSupport": "v2.0"},
        "Installation": {"NvidiaSoftware": {"Enabled": True}, "LustreClient": {"Enabled": True}},
    }
    if image.bucket:
        policy = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"
        build["Components"] = [{"Type": "script", "Value": f"{image.bucket}/apply.sh"}]
        build["Iam"] = {"AdditionalIamPolicies": [{"Policy": policy}]}
    tags = [{"Key": key, "Value": value} for key, value in _tags(image, bool(image.bucket)).items()]
    tags = [tag for tag in tags if tag["Key"].startswith(OWN)]
    volume = {"Size": VOLUME_GIB, "Encrypted": True}
    return {"Region": image.region, "Build": build, "Image": {"Tags": tags, "RootVolume": volume}}


def installed(image: Machine) -> dict[str, str]:
    """What the roles install in the set's version. Driver and CUDA are the base's, which is only required to be new
    enough: /etc/trainwright-driver says which driver was found."""
    names = ["efa"]
    if image.facts["accelerator"] == "nvidia":
        names += ["ofi_nccl"]  # the EFA installer brings it
        names += ["container_toolkit"] if image.facts["containers"] != "none" else []
        names += ["enroot"] if image.facts["containers"] == "enroot" and image.base != "parallelcluster" else []
    return {name: str(image.set.versions()[name]) for name in names}


def _tags(image: Machine, roles: bool = True) -> dict[str, str]:
    """Only what is known of the image; without the roles it is the parent's."""
    tags = {"Name": image.name, f"{OWN}set": image.set.name, f"{OWN}version": __version__}
    tags |= {f"{OWN}{name}": version for name, version in (installed(image) if roles else {}).items()}
    if image.base == "parallelcluster":  # an image without these is refused when a cluster is created
        tags |= {"parallelcluster:version": str(image.set.parallelcluster), "parallelcluster:os": image.os}
    return tags


def _values(image: Machine) -> dict[str, Any]:
    facts = image.facts
    return {
        "title": facts["title"], "os": image.os, "set": image.set, "region": image.region,
        "instance": facts["instance"], "name": image.name,
        "description": f"{facts['title']} with version set {image.set.name} of {image.set.date}",
        "user": facts["os"][image.os]["user"], "source_name": image.source_name, "tags": _tags(image),
        "device": "/dev/sda1" if image.os.startswith("ubuntu") else "/dev/xvda", "volume": VOLUME_GIB,
        "ansible": ANSIBLE, "bucket": image.bucket, "pcluster": image.base == "parallelcluster",
        "parallelcluster": str(image.set.parallelcluster),
    }  # fmt: skip


def record(image: Machine, files: Mapping[str, str]) -> dict[str, Any]:
    """The facts of an image, for image.json and `--json`."""
    return {
        "trainwright": __version__,
        "kind": "machine",
        "image": image.name,
        "base": image.source_name,
        "os": image.os,
        "set": {"name": image.set.name, "date": image.set.date, "source": image.set.source},
        "versions": installed(image),
        "files": digests(files),
    }


def _yaml(content: Mapping[str, Any], comment: str) -> str:
    import yaml

    dumped: str = yaml.safe_dump(dict(content), sort_keys=False, width=110)
    return f"---\n# {comment} Written by `trainwright image machine`.\n{dumped}"


def _engine() -> Any:
    engine = shell_environment(TEMPLATES, trim_blocks=True, lstrip_blocks=True)
    # A string of HCL: as in JSON, and `${` is no place to fill in.
    engine.filters["hcl"] = lambda value: ScriptText(json.dumps(str(value)).replace("${", "$${").replace("%{", "%%{"))
    return engine
