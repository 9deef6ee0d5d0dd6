"""What a platform demands of a job beyond what any scheduler does: an image where code is not sent along, shared
folders, secrets by the service that keeps them, and the words of Kubernetes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainwright.catalog.capabilities import scheduler_of
from trainwright.jobs.run_folder import run_root
from trainwright.jobs.runtime import lacks_shared_folder
from trainwright.recipes.model import Foreign, Recipe

if TYPE_CHECKING:
    from trainwright.jobs.resolve import JobResolver


def check_demands(resolver: JobResolver, recipe: Recipe | None) -> None:
    """What a platform that runs images needs of a job; and one that sends code along, of the nodes."""
    if resolver.ships_code:
        if not resolver.scheduler and lacks_shared_folder(resolver.spec):
            resolver.refuse(
                "SPC004", what="nodes of HyperPod share no folder of their own, for runs, code or the runtime",
                fix="add `storage: [{mount: /fsx, lustre: {}}]`",
            )  # fmt: skip
        return
    if not (
        resolver.job.container or (recipe is not None and isinstance(recipe.trainer, Foreign) and recipe.trainer.image)
    ):
        resolver.refuse(
            "SPC004", what=f"platform {resolver.spec.platform} runs images, and job {resolver.job.name!r} names none",
            fix="add `container: image:tag`",
        )  # fmt: skip
    if not run_root(resolver.spec):
        resolver.refuse(
            "SPC004", what="there is no shared storage for the run folder: checkpoints would be lost with the pods",
            fix="add `storage: [{mount: /fsx, lustre: {}}]`, or name a folder: `runs: /folder`",
        )  # fmt: skip
    _kubernetes(resolver)
    if resolver.spec.platform == "batch":
        _batch_secrets(resolver)


def _batch_secrets(resolver: JobResolver) -> None:
    """Batch fetches the value of a secret itself, from the service that keeps it."""
    for variable in resolver.job.referenced:
        resolver.refuse(
            "SPC004", "env", variable,
            what=f"Batch takes no value of {variable} from here that is not written into the job definition",
            fix=f"keep it in Secrets Manager or Parameter Store, and name it: `secrets: {{{variable}: arn:…}}`",
        )  # fmt: skip
    if resolver.job.secrets and not resolver.spec.batch.execution_role:
        resolver.refuse(
            "SPC004", "secrets", what="Batch fetches secrets with an execution role, and the spec names none",
            fix="add `batch: {execution_role: arn:…}`",
        )  # fmt: skip


def _kubernetes(resolver: JobResolver) -> None:
    """What a job on Kubernetes states in the words of Kubernetes."""
    if scheduler_of(resolver.spec.platform).name != "kubernetes":
        return
    for variable, reference in resolver.job.secrets.items():
        name, _, key = reference.partition("/")
        if not (name and key):
            resolver.refuse(
                "SPC004", "secrets", variable, what=f"the secret {reference!r} of {variable} is not NAME/KEY",
                fix="name the Kubernetes Secret and the key in it, such as hugging-face/token",
            )  # fmt: skip
    kind = resolver.job.kind or resolver.spec.kubernetes.kind
    title = {"jobset": "JobSet", "trainjob": "TrainJob", "rayjob": "RayJob"}.get(kind, "")
    if resolver.spec.kubernetes.gang and title:
        resolver.refuse(
            "SPC004", *(("kind",) if resolver.job.kind else ()),
            what=f"a {title} names no gang scheduler "
            f"(`kubernetes: gang: {resolver.spec.kubernetes.gang}`)",
            fix="let Kueue admit it as a whole: `kubernetes: {kueue: QUEUE}`, or use kind: pytorchjob",
        )  # fmt: skip
    if kind == "trainjob" and not resolver.job.requeue:
        resolver.refuse(
            "SPC004", "requeue", what="whether a TrainJob restarts is set by its runtime, not by the job",
            fix="leave `requeue: false` out, or use kind: jobset",
        )  # fmt: skip
