"""`trainwright image`: containers and machine images from one version set."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


@click.group()
def command() -> None:
    """Write container images and machine images from one version set.

    Nothing is built here: each folder has the files and the script that builds them. Run the same command again after
    an update; a folder that holds anything else is refused.
    """


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def sets(as_json: bool) -> None:
    """List the version sets and the container families."""
    from trainwright.catalog.families import families
    from trainwright.catalog.versions import software_title, version_set, version_sets
    from trainwright.cli.table import columns

    chosen = [version_set(name) for name in version_sets()]
    if as_json:
        rows = {one.name: {**_texts(one.versions()), "date": one.date, "source": one.source} for one in chosen}
        held = {one.name: list(one.frameworks) for one in families().values()}
        click.echo(json.dumps({"sets": rows, "families": held}, indent=2))
        return
    names = list(chosen[0].versions())
    table = [(software_title(name), *(str(one.versions()[name]) for one in chosen)) for name in names]
    click.echo(columns(("SOFTWARE", *(one.name for one in chosen)), [*table, ("date", *(one.date for one in chosen))]))
    click.echo()
    rows_ = [(one.name, one.title, ", ".join(one.frameworks)) for one in families().values()]
    click.echo(columns(("FAMILY", "WHAT", "FRAMEWORKS"), rows_))


@command.command()
@click.option("--for", "recipe", metavar="RECIPE", help="The image that a recipe runs in.")
@click.option("--family", metavar="FAMILY", help="Or a family: pytorch, verl, megatron, nemo, jax, maxtext, neuron.")
@click.option("--framework", metavar="NAME", help="And a framework of it; default: its first.")
@click.option("--set", "set_", metavar="SET", help="The version set. Default: the one that the framework runs with.")
@click.option(
    "--repository", default="", metavar="NAME", help="Repository in ECR. Default: trainwright/FAMILY-FRAMEWORK."
)
@click.option("--region", default="", metavar="REGION", help="Region of the repository; else as the AWS CLI has it.")
@click.option("--squash", default="/fsx/images", metavar="FOLDER", help="Where squash files go on the cluster.")
@click.option("-o", "--out", "folder", metavar="FOLDER", help="Where to write. Default: FAMILY-FRAMEWORK.image.")
@click.option("--json", "as_json", is_flag=True, help="Print the image's facts as JSON.")
def container(
    recipe: str | None,
    family: str | None,
    framework: str | None,
    set_: str | None,
    repository: str,
    region: str,
    squash: str,
    folder: str | None,
    as_json: bool,
) -> None:
    """Write a Dockerfile with everything pinned, its build script, and its bill of materials.

    Without --for and --family: the image of our own trainer.
    """
    from trainwright.catalog.versions import version_set
    from trainwright.folders import earlier_files, write_folder
    from trainwright.images.container import RECORD, Container, container_files, record
    from trainwright.images.families import choose

    held, chosen = choose(recipe, family, framework)
    image = Container(held, chosen, version_set(set_ or chosen.set), repository, region, squash)
    target = Path(folder or f"{held.name}-{chosen.name}.image")
    earlier = earlier_files(target, RECORD, "image", "--out")
    files, archives = container_files(image)
    facts = record(image, files, archives)
    write_folder(target, files, archives, RECORD, facts, earlier, "--out")
    if as_json:
        click.echo(json.dumps({"folder": str(target), **facts}, indent=2))
        return
    _show(target, facts)
    click.echo(f"build and push it: {target}/build.sh; on the cluster: {target}/build.sh squash", err=True)


@command.command()
@click.option("--base", default="parallelcluster", metavar="BASE", help="parallelcluster, dlami, eks or neuron.")
@click.option("--os", "system", default="", metavar="OS", help="ubuntu2204, ubuntu2404 or alinux2023.")
@click.option("--set", "set_", default="default", metavar="SET", help="The version set.")
@click.option("--region", default="us-east-2", metavar="REGION", help="Where the image is built.")
@click.option("--parent", default="", metavar="AMI", help="pcluster build-image: the image to start from.")
@click.option("--bucket", default="", metavar="S3", help="pcluster build-image: where it finds the roles, s3://…")
@click.option("-o", "--out", "folder", metavar="FOLDER", help="Where to write. Default: BASE-OS.image.")
@click.option("--json", "as_json", is_flag=True, help="Print the image's facts as JSON.")
def machine(
    base: str, system: str, set_: str, region: str, parent: str, bucket: str, folder: str | None, as_json: bool
) -> None:
    """Write a Packer template with Ansible roles, and for ParallelCluster a `pcluster build-image` configuration."""
    from trainwright.catalog.versions import version_set
    from trainwright.folders import earlier_files, write_folder
    from trainwright.images.machine import RECORD, Machine, first_system, machine_files, record

    image = Machine(base, system or first_system(base), version_set(set_), region, parent, bucket)
    target = Path(folder or f"{image.base}-{image.os}.image")
    earlier = earlier_files(target, RECORD, "image", "--out")
    files = machine_files(image)
    facts = record(image, files)
    write_folder(target, files, {}, RECORD, facts, earlier, "--out")
    if as_json:
        click.echo(json.dumps({"folder": str(target), **facts}, indent=2))
        return
    _show(target, facts)
    click.echo(f"build it: {target}/build.sh packer", err=True)


def _show(target: Path, facts: Mapping[str, Any]) -> None:
    from trainwright.catalog.versions import software_title
    from trainwright.cli.table import columns

    click.echo(f"{facts['image']}, from {facts['base']}")
    if facts["versions"]:
        click.echo(columns(("SOFTWARE", "VERSION"), [(software_title(n), v) for n, v in facts["versions"].items()]))
    click.echo("\n".join(f"{target}/{name}" for name in facts["files"]))


def _texts(versions: Mapping[str, object]) -> dict[str, str]:
    return {name: str(version) for name, version in versions.items()}
