"""What a file is, from its content. A reader module offers `recognise(root) -> bool` and `read(file) -> None`; adding a
format is adding a module here."""

from __future__ import annotations

import importlib
import re
from functools import cache
from os.path import splitext
from pathlib import PurePath
from typing import Protocol, cast

from trainwright.check.model import File
from trainwright.check.readers.env_file import is_env_file
from trainwright.check.readers.hcl_source import parse_tfvars
from trainwright.check.readers.hjson_source import parse_hjson
from trainwright.check.readers.json_source import parse_json
from trainwright.check.readers.ours import is_python, is_training_script
from trainwright.check.readers.slurm_conf import kind_of as slurm_kind
from trainwright.check.readers.templates import filled, is_template, without_suffix
from trainwright.spec.source import MAX_NODES, LimitError, Node, SourceError, parse

# Order matters where a file could be two things: the more particular shape first. The last is for files that are
# named as values.
STRUCTURED = (
    "spec", "parallelcluster", "eksctl", "hyperpod", "cloudformation", "kubernetes", "deepspeed", "trainer_config",
    "helm_values",
)  # fmt: skip
_SHELL_SUFFIXES = {".sh", ".bash", ".sbatch", ".slurm"}
_SHELL_START = re.compile(r"\A#!.*\b(ba|z|k|da)?sh\b|^#SBATCH\b", re.MULTILINE)
_NO_VERSION = re.compile(r"^kind: *(Pod|Job|CronJob|Deployment|StatefulSet|DaemonSet) *$", re.MULTILINE)
_DOCKER_START = re.compile(r"\A(\s*(#.*)?\n)*\s*(ARG\s.*\n(\s*(#.*)?\n)*\s*)*FROM\s+\S+", re.IGNORECASE)
_DOCKERFILE = re.compile(r"^dockerfile|[._-]dockerfile$")
_YAML_SUFFIXES = {".yaml", ".yml", ".json", ".template", ".cfn"}
_LONG = 2**18
_TORCHTITAN = re.compile(r"^\[(training|parallelism)\]", re.MULTILINE)
_DEEPSPEED = re.compile(r'"(zero_optimization|train_micro_batch_size_per_gpu)"')  # reads Hjson
# What every file of a known kind holds: parsing all other YAML of a repository would take most of the time.
_MARKS = (
    "AWS::", "Custom::", "AWSTemplateFormatVersion", "Scheduling", "InstanceGroups", "workload_manager",
    "worker_groups", "zero_optimization", "compute_environment", "device_train_microbatch_size", "num_nodes",
    "per_device_train_batch_size", "finetuning_type", "nvidia.com/gpu", "train_batch_size",
    "train_micro_batch_size_per_gpu",
)  # fmt: skip
TERRAFORM_MARKS = (
    "aws_fsx_lustre_file_system", "aws_eks_node_group", "eks_managed_node_groups", "self_managed_node_groups",
    "aws_launch_template", "sagemaker_cluster", "aws_security_group", "aws_subnet", "aws_eks_cluster",
    "terraform-aws-modules/eks/aws",
)  # fmt: skip
# Of a file that is about roles; what it says comes in any order.
_ROLES = re.compile(r"\baws_iam_(role|policy)")
_WIDE = re.compile(
    r"/(Administrator|PowerUser|IAMFull|AmazonSSMFull)Access\b|\bactions?\"?\s*[=:]\s*(\"\*\"|\[[^\]]{0,4000}?\"\*\")",
    re.IGNORECASE,
)
_SPEC_WORDS = ("platform", "queues", "extends")
_SPEC_KEY = re.compile(r"(?:^|[{,])\s*[\"']?(?:platform|queues|extends)[\"']?\s*:", re.MULTILINE)
# Names worth opening when a folder is walked; an explicit file is always opened.
CANDIDATE_SUFFIXES = _SHELL_SUFFIXES | _YAML_SUFFIXES | {".job", ".py", ".toml", ".tf", ".tfvars", ".env"}


def read_file(path: str, text: str, named: bool = True) -> File | None:
    """The file read into the model, or None when it is of no kind we know. Of files that a walk met (not `named`),
    those without a single word of ours are not parsed."""
    inner = without_suffix(PurePath(path).name)
    if inner.endswith(".py"):
        return File(path, text, "python") if is_training_script(text) else None
    suffixed = inner != PurePath(path).name
    kind = _textual_kind(inner, text)
    if kind is not None:
        file = File(path, filled(text) if suffixed and is_template(text) else text, kind)
        _reader("shell").read(file)
        file.text = text
        return file
    if is_env_file(inner, text):
        file = File(path, text, "env")
        _reader("env_file").read(file)
        return file
    if path == "<stdin>" and is_python(text):
        return File(path, text, "python")
    slurm = slurm_kind(inner, text) if inner.endswith(".conf") else None
    if slurm is not None:
        file = File(path, filled(text) if is_template(text) else text, f"{slurm}.conf")
        _reader("slurm_conf").read(file)
        file.text = text
        return file
    if inner.endswith(".tf"):
        if not any(mark in text for mark in TERRAFORM_MARKS) and not (_ROLES.search(text) and _WIDE.search(text)):
            return None
        file = File(path, text, "terraform")
        _reader("terraform").read(file)
        return file
    if inner.endswith(".tfvars"):
        return File(path, text, "tfvars", [parse_tfvars(text, path)])
    if not named and not _may_be_ours(text):
        return None
    template = is_template(text)
    documents = _documents(inner, filled(text) if template else text, path)
    for kind in STRUCTURED if "values" in inner.lower() else STRUCTURED[:-1]:
        reader = _reader(kind)
        is_it = reader.recognise if named or kind != "spec" else _is_certain_spec
        if any(is_it(document) for document in documents if document.is_map):
            file = File(path, text, kind, documents, template=template)
            reader.read(file)
            return file
    return None


def _is_certain_spec(root: Node) -> bool:
    from trainwright.check.readers.spec import is_certain

    return is_certain(root)


def _may_be_ours(text: str) -> bool:
    if any(mark in text for mark in _MARKS) or _TORCHTITAN.search(text):
        return True
    if "apiVersion" in text and re.search(r"\bkind[\"']?\s*:", text):
        return True
    if _NO_VERSION.search(text) and "containers" in text:
        return True
    return any(word in text for word in _SPEC_WORDS) and _SPEC_KEY.search(text) is not None


def _documents(inner: str, text: str, path: str) -> list[Node]:
    """JSON by JSON's rules, everything else as YAML; a text that only looks like JSON gets a second chance."""
    if text.lstrip()[:1] == "{" or inner.endswith(".json"):
        try:
            return [parse_json(text, path)]
        except SourceError as error:
            if _DEEPSPEED.search(text):
                return [parse_hjson(text, path)]  # where it stops, DeepSpeed stops too
            try:
                return parse(text, path)
            except SourceError:
                raise error from None
    if inner.endswith(".toml"):
        if not _TORCHTITAN.search(text):
            return []
        from trainwright.check.readers.toml_source import parse_toml

        return [parse_toml(text, path)]
    if len(text) > _LONG:
        _refuse_endless(text, path)
    return parse(text, path)


def _refuse_endless(text: str, path: str) -> None:
    """Composing a million nodes takes half a minute; counting up to the limit takes half a second."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        if any(count >= MAX_NODES for count, _ in enumerate(yaml.parse(text, Loader=loader))):
            raise LimitError(f"the file holds more than {MAX_NODES:,} values", path, fix="check its parts")
    except yaml.YAMLError:
        return  # parsing it reports the place


def _textual_kind(inner: str, text: str) -> str | None:
    name = PurePath(inner)
    if name.suffix in _YAML_SUFFIXES:
        return None
    if name.suffix in _SHELL_SUFFIXES or _SHELL_START.search(text[:4096]):
        return "sbatch" if re.search(r"^#SBATCH\b", text, re.MULTILINE) else "shell"
    if _DOCKER_START.match(text) and not text.lstrip().startswith("{"):
        return "dockerfile"
    return None


def is_textual(path: str, text: str) -> bool:
    """Whether a file is read line by line, as a shell script, Dockerfile or Slurm's file, not parsed as a whole."""
    inner = without_suffix(PurePath(path).name)
    return _textual_kind(inner, text) is not None or (inner.endswith(".conf") and slurm_kind(inner, text) is not None)


def looks_readable(name: str) -> bool:
    """Whether a walk should open a file of this name at all."""
    name = without_suffix(name).lower()
    if name.endswith(".conf"):
        return any(word in name for word in ("slurm", "gres", "topology"))
    return splitext(name)[1] in CANDIDATE_SUFFIXES or _DOCKERFILE.search(name) is not None


class Reader(Protocol):
    """What a reader module offers."""

    def recognise(self, root: Node) -> bool: ...

    def read(self, file: File) -> None: ...


@cache
def _reader(kind: str) -> Reader:
    return cast(Reader, importlib.import_module(f"trainwright.check.readers.{kind}"))
