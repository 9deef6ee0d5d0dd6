"""`deploy.sh` and `undeploy.sh` of a plan: exactly this plan, by the command lines of AWS, for a person to read and
run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwright.catalog.versions import version_set
from trainwright.platforms.tags import platform_tag
from trainwright.platforms.wiring import StackPlan
from trainwright.shell_templates import shell_environment
from trainwright.spec.model import Spec

SCRIPTS = Path(__file__).parent / "scripts"
HOLD_DATA = ("bucket", "lustre", "openzfs", "accounting")  # templates whose stacks are removed only by name


def stack_tags(spec: Spec) -> list[str]:
    """The tags of a spec as `aws cloudformation deploy` takes them; the script adds the cluster's name."""
    return [f"{key}={value}" for key, value in {**spec.tags, **platform_tag(spec)}.items()]


def deploy_scripts(
    spec: Spec, stacks: Sequence[StackPlan], contents: Mapping[str, bytes], scripts: Mapping[str, str]
) -> dict[str, str]:
    """The two scripts. `scripts` maps a file of the plan that nodes fetch to its place in the bucket."""
    engine = shell_environment(SCRIPTS, trim_blocks=True, lstrip_blocks=True)
    uploads = [(file, hashlib.sha256(contents[file]).hexdigest(), key) for file, key in sorted(scripts.items())]
    keys = [stack.key for stack in stacks]
    common = {"cluster": spec.name, "region": spec.region}
    deploy = engine.get_template("deploy.sh.j2").render(
        **common, version=version_set("default").parallelcluster, stacks=keys,
        reasons={stack.key: stack.why for stack in stacks}, uploads=uploads,
        tags=stack_tags(spec),
    )  # fmt: skip
    kept = [stack.key for stack in stacks if stack.template in HOLD_DATA]
    undeploy = engine.get_template("undeploy.sh.j2").render(**common, removed=keys[::-1], kept=kept)
    return {"deploy.sh": deploy, "undeploy.sh": undeploy}
