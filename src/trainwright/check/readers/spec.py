"""Our own spec -> model. What the user left out is filled in as `plan` would, so that rules see what would be built; a
finding then points at the part it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.catalog.capabilities import platforms
from trainwright.check.model import BootScript, CheckedSpec, Cluster, Database, File, Head, Link, Queue, Storage, Value
from trainwright.check.readers.values import is_placeholder, map_values, text_at, texts_at
from trainwright.spec.source import Node

if TYPE_CHECKING:
    from trainwright.spec import model as spec_model
    from trainwright.spec.load import LoadedSpec

_FOREIGN = {"apiVersion", "kind", "Resources", "services", "on", "Scheduling"}
_FIELDS = {
    "name", "platform", "region", "zone", "queues", "storage", "head", "software", "network", "accounting",
    "monitoring", "tags", "slurm", "kubernetes", "batch", "runs", "jobs", "extends",
}  # fmt: skip
_QUEUE_FIELDS = {"name", "instance"}


def recognise(root: Node) -> bool:
    keys = set(root.value)
    if keys & _FOREIGN:
        return False
    platform, queues = root.get("platform"), root.get("queues")
    named = platform is not None and platform.text in platforms()
    listed = queues is not None and queues.is_list and ("name" in keys or platform is not None)
    begun = ("extends" in keys and len(keys) > 1) or {"name", "platform"} <= keys
    return named or listed or (begun and keys <= _FIELDS)


def is_certain(root: Node) -> bool:
    """Whether a file that nobody named is a spec: other programs have names, platforms, queues and bases too."""
    platform, queues = root.get("platform"), root.get("queues")
    named = platform is not None and platform.text in platforms()
    listed = queues is not None and queues.is_list and _are_maps(queues)
    if listed and queues is not None:
        return named or any(set(queue.value) >= _QUEUE_FIELDS for queue in queues.elements())
    jobs = root.get("jobs")
    begun = jobs is not None and jobs.is_list and _are_maps(jobs) and (named or "extends" in root.value)
    return begun and set(root.value) <= _FIELDS


def _are_maps(node: Node) -> bool:
    return bool(node.value) and all(one.is_map for one in node.elements())


def read(file: File) -> None:
    """Fill the file's clusters and jobs; a spec of the wrong shape raises SpecError with every mistake."""
    from trainwright.spec.load import load_node

    for document in file.nodes:
        loaded = load_node(document, file.path)
        add(file, loaded)


def add(file: File, loaded: LoadedSpec, scheduler: str = "") -> None:
    """Add a loaded spec to a file: its cluster and its jobs. `scheduler`: another than the platform's."""
    from trainwright.check.readers.spec_jobs import jobs_of
    from trainwright.jobs.resolve import resolve_jobs
    from trainwright.spec.defaults import resolve

    full, _ = resolve(loaded.spec)
    checked = CheckedSpec(loaded, full, resolve_jobs(loaded, scheduler), scheduler)
    file.specs.append(checked)
    cluster = _cluster(loaded, full)
    file.clusters.append(cluster)
    file.jobs += jobs_of(checked, cluster)


def _cluster(loaded: LoadedSpec, spec: spec_model.Spec) -> Cluster:
    root = loaded.node
    zone = text_at(root, "zone")
    os, image = _at(root, spec.software.os, "software", "os"), spec.software.image
    return Cluster(
        span=root.span,
        platform=spec.platform,
        name=text_at(root, "name"),
        region=text_at(root, "region"),
        zones=[zone] if zone is not None else [],
        os=os if spec.software.os is not None else None,
        image=_at(root, image, "software", "image") if image != "stock" else None,
        imds=Value("v2.0", root.span),
        head=_head(root, spec) if spec.platform != "local" else None,
        queues=[_queue(root, spec, index) for index in range(len(spec.queues))],
        storages=[_storage(root, item, index) for index, item in enumerate(spec.storage)],
        slurm_settings=map_values(root.get("slurm")),
        database=_database(root, spec),
        containers=_at(root, spec.software.containers, "software", "containers") if spec.software.containers else None,
    )


def _at(root: Node, value: Any, *path: str | int) -> Value[Any]:
    """A value as it would be built, at the place it (or the nearest part that is written) stands."""
    node, parent = root.get(*path), root.get(*path[:-1])
    key = parent.keys.get(path[-1]) if parent is not None and isinstance(path[-1], str) else None
    text = node.text if node is not None else ""
    return Value(value, root.span_at(path), text, key, not is_placeholder(text))


def _head(root: Node, spec: spec_model.Spec) -> Head:
    node = root.get("head")
    return Head(
        span=root.key_span("head") if node is not None else root.span,
        instance=_at(root, spec.head.instance, "head", "instance") if spec.head.instance else None,
        key=text_at(root, "head", "key"),
        scripts=_scripts(root, spec.head.scripts, "head"),
        root_volume_gib=_at(root, (spec.head.root_volume or 0) // 2**30, "head", "root_volume"),
    )


def _scripts(root: Node, scripts: tuple[spec_model.Script, ...], *path: str | int) -> list[BootScript]:
    return [
        BootScript(
            _at(root, script.source, *path, "scripts", index, "source"),
            texts_at(root, *path, "scripts", index, "args"),
        )
        for index, script in enumerate(scripts)
    ]


def _queue(root: Node, spec: spec_model.Spec, index: int) -> Queue:
    one = spec.queues[index]
    here = ("queues", index)
    span = root.span_at(here)
    kind = {"block": "block", "spot": "spot"}.get(one.capacity.kind, "on-demand")
    subnet = text_at(root, "network", "private_subnet")
    group = text_at(root, "network", "security_group")
    instance = text_at(root, *here, "instance")
    low, high = (one.count.min, one.count.max) if one.count is not None else (0, 1)
    named = isinstance(one.placement, str)
    return Queue(
        span=span,
        name=text_at(root, *here, "name"),
        instances=[instance] if instance is not None else [],
        min_count=_count(root, here, "min", low),
        max_count=_count(root, here, "max", high),
        capacity=_at(root, kind, *here, "capacity"),
        reservation=_capacity(root, here, one, "reservation") or _capacity(root, here, one, "block"),
        reservation_group=_capacity(root, here, one, "group"),
        placement=_at(root, bool(one.placement), *here, "placement"),
        placement_name=_at(root, one.placement, *here, "placement") if named else None,
        efa=_at(root, bool(one.efa), *here, "efa"),
        subnets=[subnet] if subnet is not None else [],
        zones=[zone for zone in [text_at(root, "zone")] if zone is not None],
        security_groups=[group] if group is not None else [],
        scripts=_scripts(root, one.scripts, *here),
        root_volume_gib=_at(root, (one.root_volume or 0) // 2**30, *here, "root_volume") if one.root_volume else None,
        scratch=next((_at(root, s.mount, "storage", i, "mount") for i, s in enumerate(spec.storage) if s.nvme), None),
    )


def _count(root: Node, here: tuple[str | int, ...], key: str, value: int) -> Value[int]:
    node = root.get(*here, "count")
    return (
        _at(root, value, *here, "count", key) if node is not None and node.is_map else _at(root, value, *here, "count")
    )


def _capacity(root: Node, here: tuple[str | int, ...], queue: spec_model.Queue, kind: str) -> Value[str] | None:
    if queue.capacity.kind != kind or queue.capacity.id is None:
        return None
    return _at(root, queue.capacity.id, *here, "capacity", kind)


def _storage(root: Node, item: spec_model.Storage, index: int) -> Storage:
    here = ("storage", index)
    storage = Storage(root.span_at(here), item.kind, mount=text_at(root, *here, "mount"))
    storage.deletion_policy = Value("Retain", storage.span)  # the stacks keep what holds data
    settings = item.lustre or item.openzfs or item.efs
    if settings is not None and settings.id is not None:
        storage.existing = _at(root, settings.id, *here, item.kind, "id")
    if item.lustre is not None and item.lustre.id is None:
        _lustre(root, storage, item.lustre, here)
    if item.openzfs is not None and item.openzfs.id is None and item.openzfs.throughput is not None:
        storage.throughput = _at(root, item.openzfs.throughput, *here, "openzfs", "throughput")
    bucket = text_at(root, *here, "bucket")
    if bucket is not None:
        storage.links.append(Link(bucket, bucket.span))
    return storage


def _lustre(root: Node, storage: Storage, lustre: spec_model.Lustre, here: tuple[str | int, ...]) -> None:
    at = (*here, "lustre")
    deployment = (lustre.deployment or "persistent-2").upper().replace("-", "_")
    storage.deployment = _at(root, deployment, *at, "deployment")
    storage.capacity_gib = _at(root, float(lustre_gib(root.get(*at, "capacity"), lustre.capacity)), *at, "capacity")
    storage.efa = _at(root, lustre.efa, *at, "efa") if lustre.efa else None
    if lustre.throughput is not None:
        storage.throughput = _at(root, lustre.throughput, *at, "throughput")


def lustre_gib(node: Node | None, capacity: int | None) -> int:
    """FSx sells 1,200 GiB and says 1.2 TiB: a size written in TiB counts a thousand GiB each."""
    written = node.text.strip().lower() if node is not None else ""
    size = capacity or 0
    if written.endswith(("tib", "ti")):
        return round(size / 2**40 * 1000)
    return round(size / 10**9) if written.endswith(("tb", "t", "gb", "g")) else round(size / 2**30)


def _database(root: Node, spec: spec_model.Spec) -> Database | None:
    node = root.get("accounting")
    if spec.accounting is None or node is None or not node.is_map or not node.value:
        return None  # `true` makes a database of ours
    return Database(
        root.key_span("accounting"),
        text_at(root, "accounting", "uri"),
        text_at(root, "accounting", "user"),
        text_at(root, "accounting", "secret"),
    )
