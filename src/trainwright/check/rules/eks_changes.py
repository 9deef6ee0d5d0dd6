"""EKS: what else has to change in a file whose version of Kubernetes is raised, or whose nodes get another image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import timedelta

from trainwright.catalog.versions import kubernetes_versions, today
from trainwright.check.model import Cluster, File, LaunchTemplate, Queue, Value, known
from trainwright.check.readers.terraform_groups import GROUPS_UNTIL_17
from trainwright.check.readers.terraform_variables import texts_beside
from trainwright.check.rules.eks_objects import groups_of_eksctl, objects_of_older_versions, parts_of_eksctl
from trainwright.check.rules.eks_successors import successor
from trainwright.check.tables import table
from trainwright.spec.source import Node

AMAZON_LINUX_2 = re.compile(r"AL2_(x86_64|x86_64_GPU|ARM_64)|AmazonLinux2|AL2|al2@.*")
SOON = timedelta(days=90)
_FOUND_BY_EKSCTL = ("auto", "auto-ssm")
# What only the images with Amazon Linux 2 run at boot, and what only they have.
_BOOTSTRAP = re.compile(r"/etc/eks/bootstrap\.sh|bootstrap_extra_args|-?-?kubelet[-_]extra[-_]args")
_OF_BOTTLEROCKET = re.compile(r"\bbootstrap_extra_args\s*=\s*<<[-~]?\w+\s*\n(?=\s*(#[^\n]*\n\s*)*\[)")  # in TOML
_SIZE = re.compile(r"\b(?:disk_size|root_volume_size)\s*=\s*\"?(\d{1,4})\b")
_EXTRAS = re.compile(r"\bamazon-linux-extras\b")
_OF_DOCKER = re.compile(r"/etc/docker/daemon\.json|systemctl (re)?start docker")
# Of the community's module, which reads them for Amazon Linux 2 only, from the version on that chooses by the image.
_OF_MODULE = re.compile(r"^\s*(pre|post)_bootstrap_user_data\s*=", re.MULTILINE)
_BY_IMAGE, _WITH_GROUPS = 20, 18
_STATED = re.compile(r"\"(AL2_(?:x86_64|x86_64_GPU|ARM_64))\"")
# Names and paths by which a file looks up the newest image with Amazon Linux 2.
_BY_NAME = re.compile(r"\bamazon-eks-((gpu-|arm64-)?node)-(?=[\d$*%{]|v[\d*])")
_BY_PATH = re.compile(r"/aws/service/eks/optimized-ami/[^\s\"']*?/(amazon-linux-2(-gpu|-arm64)?)/")
_OF_RELEASE = re.compile(_BY_PATH.pattern + r"[^\s\"']*release_version")  # of groups whose image is not named by its id
_COMMENT = re.compile(r"^[ \t]*(#|//).*$", re.MULTILINE)
_PINNED = re.compile(
    r"\"hashicorp/aws\"\s*,?\s*version\s*=\s*\"([^\"]+)\""
    r"|\bversion\s*=\s*\"([^\"]+)\"\s*,?\s*source\s*=\s*\"hashicorp/aws\""
    r"|\bprovider\s+\"aws\"\s*\{[^{}]*?\bversion\s*=\s*\"([^\"]+)\""
)
_CONSTRAINT = re.compile(r"(~>|[<>!]?=|<|>)?\s*v?(\d+(?:\.\d+)*)")
_RELEASE = re.compile(
    r"^\s*(?:-\s+)?((?:ami_)?release_version|releaseVersion)\s*[=:]\s*[\"']?1\.[\d.]+(?:-(\d{8}))?",
    re.MULTILINE | re.IGNORECASE,
)
_IMAGE_ID = re.compile(r"\bami_id\s*=\s*\"ami-")
_END_OF_LINE = re.compile(r"[ \t](#|//)\s.*")  # a comment
_AUTOSCALER = re.compile(r"cluster-autoscaler\b")  # whose releases have the numbers of Kubernetes
_OF_KUBERNETES = re.compile(r"k8s|kube|autoscaler|cluster[-_]version|(?<![a-z])eks", re.IGNORECASE)
_NAMED_APART = re.compile(r"addon_version|eksbuild|release_?version|cluster-autoscaler:", re.IGNORECASE)
_PINNED_ADDON = re.compile(r"\baddon_version\"?\s*=\s*\"v|-eksbuild\.\d")
_FIRST_NUMBER = re.compile(r"(?:^|[^\w.]|v)(\d+)\b")


def changes_of_a_version(file: File, cluster: Cluster, root: Node | None) -> list[str]:
    """What is made for the version of a cluster, in the order in which a fix names it."""
    return list(dict.fromkeys(_of_a_version(file, cluster, root)))


def changes_of_an_image(file: File, cluster: Cluster | None, queues: Iterable[Queue]) -> list[str]:
    """What has to change together with images of Amazon Linux 2, in a file whose node groups get those of 2023."""
    return list(dict.fromkeys(_of_an_image(file, cluster, queues)))


PINNED = "pinned for {} (addons, charts, images, modules, providers)"


def together_with(parts: list[str], kind: str) -> str:
    """The end of a fix: the parts that the file shows, and a word about the rest, which may stand in other files."""
    listed = f", with {', '.join(parts)}" if parts else ""
    return f"{listed}; change with it whatever else is {kind}"


def _of_a_version(file: File, cluster: Cluster, root: Node | None) -> Iterator[str]:
    text = code(file)
    own = [queue for queue in cluster.queues if _own_image(file, queue)]
    if own or ("worker_groups" in cluster.extra and _IMAGE_ID.search(text)):
        yield "images (ami) of that version"
    images = [known(queue.extra.get("ami_type")) for queue in cluster.queues]
    stated = [(image, queue) for image, queue in zip(images, cluster.queues, strict=True) if image is not None]
    yield from (f"{new} instead of {image}{where}" for image, new, where in images_to_take(file, stated))
    moved = [one for one in cluster.queues if _gets_2023(one) or (one in own and not _has_other_family(one))]
    looked_up = list(_lookups(text))
    yield from looked_up
    disks = [one.disk for one in file.launch_templates if one.image is not None and "data." in one.image.text]
    if looked_up and any((size := known(one)) is not None and size < _least_gib() for one in disks):
        yield _least_disk()
    if moved or looked_up or "worker_groups" in cluster.extra or _STATED.search(text):
        yield from _of_an_image(file, cluster, moved)
    yield from _of_a_module(cluster)
    if cluster.version is not None and any(known(queue.extra.get("version")) for queue in cluster.queues):
        yield "the same version in its node groups"
    if (release := _RELEASE.search(text)) is not None:
        yield f"a release of the images ({release[1]}) of that version"
    if root is None and _PINNED_ADDON.search(text):
        yield "versions of the addons that it takes"
    if cluster.version is not None and cluster.version.known:
        yield from places_of_the_version(file, cluster.version)
    yield from parts_of_eksctl(root) if root is not None else ()
    yield from objects_of_older_versions(file, text)


def places_of_the_version(file: File, version: Value[str]) -> Iterator[str]:
    """Where a file names the version of a cluster again: in paths and names of images, and in those of programs."""
    groups = (queue.extra.get("version") for _, queue in file.queues)
    said = {one.span.line for one in (version, *(each.version for each in file.clusters), *groups) if one is not None}
    again = re.compile(rf"(?<![\d.]){re.escape(version.value)}(?!\d)")
    lines = _END_OF_LINE.sub("", code(file)).split("\n")
    places = [
        str(number)
        for number, line in enumerate(lines, 1)
        if number not in said and again.search(line) and not _NAMED_APART.search(line)
        if _OF_KUBERNETES.search(line) or any(map(_AUTOSCALER.search, lines[max(0, number - 6) : number]))
    ]
    if places:
        where = f"line{'s' if len(places) > 1 else ''} {' and '.join(places)}"
        yield f"that version instead of {version.value} on {where} too"


def images_to_take(file: File, groups: Iterable[tuple[str, Queue | None]]) -> Iterator[tuple[str, str, str]]:
    """Images with those that take their place, and in which groups where one image has several of these. Those of
    Terraform that stand elsewhere in the file belong to groups that a loop makes."""
    places: dict[str, dict[str, list[str]]] = {}
    for image, queue in groups:
        if image in table("eks")["successors"] and (new := successor(image, queue)):
            places.setdefault(image, {}).setdefault(new, []).append(queue.label if queue is not None else "")
    of_groups = [known(queue.extra.get("ami_type")) for _, queue in file.queues]
    for match in _STATED.finditer(code(file)) if file.format == "terraform" else ():
        if match[1] not in of_groups:
            places[match[1]] = {successor(match[1]): []}
    for image, others in places.items():
        for new, names in others.items():
            yield image, new, f" in {' and '.join(dict.fromkeys(names))}" if len(others) > 1 else ""


def _own_image(file: File, queue: Queue) -> bool:
    """Whether a group has an image by its id, of its own or of its launch template."""
    template = _template_of(file, queue)
    stated = queue.extra.get("own_image") or (template.image if template is not None else None)
    return stated is not None and stated.value not in _FOUND_BY_EKSCTL and "data." not in stated.text


def _template_of(file: File, queue: Queue) -> LaunchTemplate | None:
    """The launch template of Terraform that a group names."""
    named = queue.extra.get("launch_template")
    text = f"{named.text} {named.value}" if named is not None else ""
    return next((one for one in file.launch_templates if re.search(rf"template\.{re.escape(one.name)}\b", text)), None)


def _gets_2023(queue: Queue) -> bool:
    """Whether the nodes of a group have Amazon Linux 2023 afterwards, as they have where nothing is said."""
    image = queue.extra.get("ami_type")
    return image is None or (image.known and AMAZON_LINUX_2.fullmatch(image.value) is not None)


def _has_other_family(queue: Queue) -> bool:
    """Whether a group states a family that is neither Amazon Linux 2 nor left to its own image."""
    image = known(queue.extra.get("ami_type"))
    return image is not None and image != "CUSTOM" and AMAZON_LINUX_2.fullmatch(image) is None


def _code_without_others(file: File, cluster: Cluster | None) -> str:
    """The text without comments, and without the groups of other families in a file of eksctl."""
    if file.format != "eksctl" or cluster is None:
        return code(file)
    lines = code(file).split("\n")
    others = [queue.span for queue in cluster.queues if _has_other_family(queue)]
    for group in (one for root in file.nodes for one in groups_of_eksctl(root) if one.span in others):
        first, last = group.span.line - 1, max(one.span.end_line for one in group.walk())
        lines[first:last] = [""] * len(lines[first:last])
    return "\n".join(lines)


def _of_an_image(file: File, cluster: Cluster | None, queues: Iterable[Queue]) -> Iterator[str]:
    yield from _paths(code(file), _OF_RELEASE)
    text, module = _code_without_others(file, cluster), major(cluster) if cluster is not None else None
    queues, facts = list(queues), table("eks")["amazon_linux_2023"]
    disks = [_disk(file, queue) for queue in queues]
    if _STATED.search(text) or (cluster is not None and "worker_groups" in cluster.extra):
        disks += [int(match[1]) for match in _SIZE.finditer(text)]  # of groups that a loop or an old module makes
    if any(size is not None and size < _least_gib() for size in disks):
        yield _least_disk()
    boots = _BOOTSTRAP.search(_OF_BOTTLEROCKET.sub("", text)) is not None
    if boots:
        yield "the user data as a NodeConfig of nodeadm"
    elif module is None or module >= _BY_IMAGE:  # older ones pass them on, as the script of any image
        for part in dict.fromkeys(match[1] for match in _OF_MODULE.finditer(text)):
            yield f"{part}_bootstrap_user_data as cloudinit_{part}_nodeadm"
    if _EXTRAS.search(text):
        yield "dnf instead of amazon-linux-extras (which it does not have)"
    if _OF_DOCKER.search(text) and any(_gets_2023(queue) for queue in queues):
        yield "settings of containerd instead of those of docker (which it does not have)"
    for family, newer in facts["newer_types"].items():
        types = {one.value for queue in queues for one in queue.instances if one.value.startswith(f"{family}.")}
        if types:
            yield f"a newer type, such as {newer}, instead of {' and '.join(sorted(types))} (on which it does not run)"
    if cluster is not None and module is not None and (module < _WITH_GROUPS or (boots and module < _BY_IMAGE)):
        yield _newer_module(cluster)
        return
    images = {successor(image, one) for one in queues if (image := known(one.extra.get("ami_type"))) is not None}
    yield from changes_of_the_provider(file, images or {successor(match[1]) for match in _STATED.finditer(text)})


def _disk(file: File, queue: Queue) -> int | None:
    """The size of a group's root volume, its own or that of its launch template."""
    template = _template_of(file, queue)
    return known(queue.root_volume_gib or (template.disk if template is not None else None))


def _least_gib() -> int:
    return int(table("eks")["amazon_linux_2023"]["disk_gib"])


def _least_disk() -> str:
    return f"a disk of {_least_gib()} GiB or more"


def code(file: File) -> str:
    """The text without the lines that are comments."""
    return file.derived(_without_comments)


def _without_comments(file: File) -> str:
    return _COMMENT.sub("", file.text)


def newer_versions() -> str:
    """Versions whose standard support does not end soon; empty where the catalog is too old to know."""
    later = today() + SOON
    return " or ".join(str(row.version) for row in kubernetes_versions() if row.support(later) == "standard")


def release_of_an_image(file: File, images: Iterable[str]) -> list[str]:
    """A release of the images that is older than the first one with Amazon Linux 2023."""
    releases = table("eks")["amazon_linux_2023"]["first_release"]
    first = max((releases.get(image.rpartition("_")[2], "") for image in images), default="") or releases["STANDARD"]
    pinned = [match for match in _RELEASE.finditer(code(file)) if match[2] is not None and match[2] < first]
    return [f"a newer {pinned[0][1]}"] if pinned else []


def _lookups(text: str) -> Iterator[str]:
    for match in _BY_NAME.finditer(text):
        kind = {"gpu-": "x86_64-nvidia", "arm64-": "arm64-standard"}.get(match[2] or "", "x86_64-standard")
        yield f"images by the name amazon-eks-node-al2023-{kind}-<version>-v* instead of amazon-eks-{match[1]}-…"
    yield from _paths(text, _BY_PATH)


def _paths(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    for match in pattern.finditer(text):
        path = table("eks")["amazon_linux_2023"]["paths"][match[2] or ""]
        yield f"amazon-linux-2023/{path} instead of {match[1]} in the path of the image"


def _of_a_module(cluster: Cluster) -> Iterator[str]:
    """Old releases of the community's module look up an image with Amazon Linux 2 for self-managed groups."""
    first, looked_up = major(cluster), list(images_of_a_module(cluster))
    if "worker_groups" in cluster.extra or (looked_up and first is not None and first < _BY_IMAGE):
        yield _newer_module(cluster)
    yield from looked_up


def images_of_a_module(cluster: Cluster) -> Iterator[str]:
    """The images for groups that state none, by the module up to release 20."""
    first = major(cluster)
    groups = [one for one in cluster.queues if "self_managed" in one.extra and _finds_its_image(one)]
    images: dict[str, list[str]] = {}
    for queue in groups if first is not None and first <= _BY_IMAGE else ():
        images.setdefault(successor("AL2_x86_64", queue), []).append(queue.label)
    for image, names in images.items():
        yield f'ami_type = "{image}" in {" and ".join(names)} (for which it looks up Amazon Linux 2)'


def _newer_module(cluster: Cluster) -> str:
    """The release that knows the images, with what has to change to take it."""
    old = [key for key in GROUPS_UNTIL_17 if key in cluster.extra]
    groups = f"eks_managed_node_groups instead of {' and '.join(old)}, subnet_ids instead of subnets, " if old else ""
    others = " and releases of the other modules that it works with" if old else ""
    provider = f"hashicorp/aws {table('eks')['amazon_linux_2023']['provider_to_take']}"
    return f"release {_BY_IMAGE} of the module as its upgrade guides say ({groups}{provider}{others})"


def _finds_its_image(queue: Queue) -> bool:
    return not {"ami_type", "own_image"} & queue.extra.keys()


def major(cluster: Cluster) -> int | None:
    """The release of a module, as far as the file says it."""
    source, version = cluster.extra.get("source"), cluster.extra.get("module_version")
    first = _FIRST_NUMBER.search(version.value if version is not None else source.value if source is not None else "")
    return int(first[1]) if first is not None else None


def changes_of_the_provider(file: File, images: Iterable[str]) -> Iterator[str]:
    """A release of Terraform's provider that does not know new images, pinned here or in a file beside."""
    facts = table("eks")["amazon_linux_2023"]
    kinds = {image.rpartition("_")[2] for image in images} & facts["first_provider"].keys()
    if file.format != "terraform" or not kinds:
        return
    first = max(_padded(facts["first_provider"][kind].split(".")) for kind in kinds)
    for text in (code(file), *texts_beside(file.path)):
        for match in _PINNED.finditer(text):
            pinned = next(one for one in match.groups() if one)
            if not _admits(pinned, first):
                yield f"hashicorp/aws {facts['provider_to_take']} instead of {pinned} (which does not know that image)"
                return


def _admits(constraint: str, first: tuple[int, ...]) -> bool:
    """Whether a constraint of Terraform admits a release that is not older than another."""
    for match in _CONSTRAINT.finditer(constraint):
        numbers = [int(one) for one in match[2].split(".")]
        if match[1] == "~>":
            numbers = [*numbers[:-2], numbers[-2] + 1] if len(numbers) > 1 else [numbers[0] + 1]
        newest = _padded(numbers)
        excluded = match[1] in ("~>", "<") and newest == first
        if match[1] not in (">", ">=", "!=") and (newest < first or excluded):
            return False
    return True


def _padded(numbers: Iterable[int | str]) -> tuple[int, ...]:
    """A version as three numbers."""
    return tuple([*map(int, numbers), 0, 0][:3])
