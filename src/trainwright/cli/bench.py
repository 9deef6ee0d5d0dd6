"""`trainwright bench`: measurements of a machine or a cluster, and verdicts on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

PASS_ON = {"ignore_unknown_options": True}  # other options are the node side's own
MORE = "Further options, of the measurement itself: `trainwright bench {0} -- --help`."
words_argument = click.argument("words", nargs=-1, type=click.UNPROCESSED)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def command() -> None:
    """Measure what a machine or a cluster does, and judge it by what its wires can carry."""


def instance_options(function: Any) -> Any:
    for option in (
        click.option("--instance", default="", metavar="TYPE", help="EC2 type of the nodes; found on EC2 by itself."),
        click.option("--gbps", type=float, default=0.0, help="Rate of each node's network, where it is no EC2 type."),
        click.option("--plot", "plot_file", type=Path, metavar="FILE", help="Draw the curves as SVG."),
    ):
        function = option(function)
    return function


@command.command(
    context_settings=PASS_ON,
    epilog=MORE.format("collectives"),
    short_help="Collectives over torch.distributed: bandwidth, correctness, verdict.",
)
@instance_options
@click.option("--submit", "spec", metavar="SPEC", help="Run it on the cluster of this spec, through `submit`.")
@click.option("--nodes", type=int, default=2, help="Nodes for --submit.")
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write the result with its verdicts as JSON.")
@json_option
@words_argument
def collectives(
    words: tuple[str, ...], instance: str, gbps: float, plot_file: Path | None, spec: str | None, nodes: int,
    output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Measure collectives here, under torchrun or srun, or on a cluster, and judge them."""
    status = 0
    if spec:
        result = json.loads(_submit("collectives", spec, nodes, words).read_text(encoding="utf-8"))
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "result.json"  # never `output` itself: an earlier result there is not this run's
            status = _node_side("collectives", [*words, "-o", str(path)], quiet=as_json)
            if not path.exists() or not _first_rank():
                sys.exit(status)
            result = json.loads(path.read_text(encoding="utf-8"))
    if "rows" in result:
        status = max(status, _judge(result, instance, gbps, plot_file, as_json))
    if output:
        from trainwright.files import write_text

        write_text(output, json.dumps(result, indent=1) + "\n")
    if as_json:
        click.echo(json.dumps(result))
    sys.exit(status)


@command.command(
    context_settings=PASS_ON,
    epilog=MORE.format("device"),
    short_help="Matmul, memory, host to device, peer to peer, beside the data sheet.",
)
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write the result as JSON.")
@json_option
@words_argument
def device(words: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Measure this machine's accelerators, beside the data sheet and what `predict` assumes."""
    from trainwright.files import write_text
    from trainwright.report.device import add_limits, device_text

    result = _result_of("device", words)
    add_limits(result)
    if output:
        write_text(output, json.dumps(result, indent=1) + "\n")
    click.echo(json.dumps(result) if as_json else device_text(result))


@command.command(
    context_settings=PASS_ON, epilog=MORE.format("storage"), short_help="Reads and writes of a file system or a bucket."
)
@words_argument
def storage(words: tuple[str, ...]) -> None:
    """Measure a folder or an S3 prefix: `trainwright bench storage /fsx --paid 1200`."""
    sys.exit(_node_side("storage", list(words), "trainwright.train", "bench"))


@command.command(
    context_settings=PASS_ON,
    epilog=MORE.format("loader"),
    short_help="Image and token loaders, and the best setting for this machine.",
)
@click.option("--plot", "plot_file", type=Path, metavar="FILE", help="Draw rate by threads as SVG.")
@words_argument
def loader(words: tuple[str, ...], plot_file: Path | None) -> None:
    """Measure image or token loaders on a folder or tar file, or on made-up images."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        # A later -o of the user's wins; the plot then reads that file.
        status = _node_side("loader", ["-o", str(path), *words], "trainwright.train", "bench")
        named = next((Path(words[at + 1]) for at, word in enumerate(words[:-1]) if word in ("-o", "--output")), path)
        if plot_file and status == 0:
            from trainwright.files import write_text
            from trainwright.report.curve import loader_picture

            write_text(plot_file, loader_picture(json.loads(named.read_text(encoding="utf-8"))))
    sys.exit(status)


@command.command(
    context_settings=PASS_ON,
    epilog=MORE.format("checkpoint"),
    short_help="Save stall, save time, load time by size and method.",
)
@words_argument
def checkpoint(words: tuple[str, ...]) -> None:
    """Measure what a checkpoint costs: the stall, the save, the load, beside torch.save and synchronous DCP."""
    sys.exit(_node_side("checkpoint", list(words), "trainwright.train", "bench"))


@command.command(short_help="Read a result or the output of nccl-tests; CSV, JSON, plot, verdict.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@instance_options
@click.option("--nodes", type=click.IntRange(1), help="Where the log does not say on how many nodes it ran.")
@click.option("--op", default="", help="Where the log does not say which collective it measured.")
@click.option("--nccl-log", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="NCCL_DEBUG=INFO log.")
@click.option("--csv", "csv_file", type=Path, metavar="FILE", help="Write the rows as CSV.")
@json_option
def judge(
    file: Path, instance: str, gbps: float, plot_file: Path | None, nodes: int | None, op: str, nccl_log: Path | None,
    csv_file: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Judge FILE: a result of `bench collectives -o`, or what nccl-tests or nccom-test printed."""
    from trainwright.report.bench_files import collective_result

    result = collective_result(file, op, nodes, nccl_log)
    if csv_file:
        from trainwright.bench.results import csv_text
        from trainwright.files import write_text

        write_text(csv_file, csv_text(result["rows"]))
    status = _judge(result, instance, gbps, plot_file, as_json)
    if as_json:
        click.echo(json.dumps(result))
    sys.exit(status)


def _judge(result: dict[str, Any], instance: str, gbps: float, plot_file: Path | None, quiet: bool) -> int:
    """Add the verdicts to the result, print them, and give the exit status."""
    from trainwright.report.bench_files import draw, judge_result

    texts = judge_result(result, instance, gbps)
    if not quiet:
        click.echo("\n".join(texts))
    if plot_file:
        draw(result, plot_file)
    return 1 if any(verdict["status"] == "fail" for verdict in result["verdicts"]) else 0


def _first_rank() -> bool:
    """Where a launcher started this command once per rank, the first one speaks for all."""
    return os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0"


def _node_side(verb: str, words: list[str], *module: str, quiet: bool = False) -> int:
    """Run a measurement in a process of its own, as the nodes do. `quiet`: its table goes to stderr."""
    command = [sys.executable, "-m", *(module or ("trainwright.bench",)), verb, *words]
    return subprocess.run(command, stdout=sys.stderr if quiet else None, check=False).returncode


def _result_of(verb: str, words: tuple[str, ...]) -> dict[str, Any]:
    """The result of a measurement on the node side; its own message and status where it has none."""
    command = [sys.executable, "-m", "trainwright.bench", verb, *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode or not done.stdout.startswith("{"):
        click.echo(done.stdout, nl=False)
        sys.exit(done.returncode)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _submit(verb: str, spec: str, nodes: int, words: tuple[str, ...]) -> Path:
    """Hand the measurement to the cluster's scheduler as a script; the result that it leaves in its run folder."""
    import trainwright.bench

    script = Path(trainwright.bench.__file__).with_name("measure.py")
    folder = _followed_run([spec, "--script", str(script), "--nodes", str(nodes)], [verb, *words])
    result = folder / f"bench-{verb}.json"
    if not result.exists():
        sys.exit(1)
    return result


def _predicted_rate(options: list[str]) -> float | None:
    """Tokens per second that `predict` says for the job; None, with its reason on stderr, where it cannot."""
    command = [sys.executable, "-m", "trainwright", "predict", *options, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return float(json.loads(done.stdout)["tokens_per_s"]) if done.stdout.startswith("{") else None


def _followed_run(options: list[str], words: list[str]) -> Path:
    """Submit, pass on what is followed, and give the run's folder: `submit --json` prints the run first."""
    command = ["submit", *options, "--json", "--follow", *(["--", *words] if words else [])]
    click.echo(f"$ trainwright {' '.join(command)}", err=True)
    head, run = "", None
    # This very interpreter: `trainwright` need not be on the PATH, and could be another version there.
    own = [sys.executable, "-m", "trainwright"]
    with subprocess.Popen([*own, *command], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if run is not None:
                click.echo(line, nl=False, err=True)
                continue
            head += line
            if line.rstrip() == "}":
                run = json.loads(head)
    if run is None:
        sys.exit(process.returncode or 1)
    return Path(run["folder"])


@command.command("nccl-tests", short_help="Print the launch of nccl-tests itself, in a container, for a scheduler.")
@click.option("--instance", required=True, metavar="TYPE", help="EC2 type of the nodes.")
@click.option("--nodes", type=click.IntRange(1), default=2, show_default=True)
@click.option("--image", required=True, help="Container with nccl-tests in /opt/nccl-tests, EFA and the OFI plugin.")
@click.option("--scheduler", type=click.Choice(["slurm", "kubernetes", "batch"]), default="slurm", show_default=True)
@click.option("--op", default="all_reduce", show_default=True, help="The collective.")
def nccl_tests(instance: str, nodes: int, image: str, scheduler: str, op: str) -> None:
    """Print a script (Slurm) or a manifest (Kubernetes, Batch) that runs nccl-tests; `bench judge` reads its log."""
    from trainwright.bench.nccl_launch import NcclTest, render
    from trainwright.bench.nccl_output import operation_name
    from trainwright.catalog.environment import environment
    from trainwright.catalog.instances import instance as instance_named
    from trainwright.catalog.versions import version_set
    from trainwright.errors import UserError

    kind = instance_named(instance)
    if not kind.gpus:
        raise UserError(f"{kind.name} has no NVIDIA GPU, which nccl-tests needs", fix="Neuron nodes have nccom-test")
    if not operation_name(op):
        raise UserError(f"nccl-tests has no {op!r}", fix="such as all_reduce, all_gather, reduce_scatter, all_to_all")
    program = {"all_to_all": "alltoall", "send_recv": "sendrecv"}.get(operation_name(op), operation_name(op)) + "_perf"
    lines = [(line.name, line.value, line.why) for line in environment(kind, version_set().versions())]
    lines.append(("NCCL_DEBUG", "INFO", "NCCL's log names the transport, which `bench judge` checks"))
    test = NcclTest(program, image, kind.name, nodes, kind.gpus, kind.efa_cards, lines)
    click.echo(render(test, scheduler), nl=False)


@command.command(short_help="EC2's instance topology as an ordered host file and Slurm's topology.conf.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--names", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Lines: instance-id host.")
@click.option("--slots", type=click.IntRange(0), default=8, show_default=True, help="Ranks per host; 0: leave out.")
@click.option("--hostfile", type=Path, metavar="FILE", help="Write the host file here.")
@click.option("--conf", type=Path, metavar="FILE", help="Write topology.conf here.")
@json_option
def topology(
    file: Path, names: Path | None, slots: int, hostfile: Path | None, conf: Path | None, as_json: bool
) -> None:
    """Order the hosts of FILE (`aws ec2 describe-instance-topology`) so that neighbours share a network node."""
    from trainwright.bench.topology import describe, host_file, read_names, read_places, topology_conf
    from trainwright.files import write_text

    places = read_places(file, read_names(names))
    for path, text in ((hostfile, host_file(places, slots)), (conf, topology_conf(places))):
        if path:
            write_text(path, text)
    if as_json:
        click.echo(json.dumps([{"host": place.host, "network_nodes": place.switches} for place in places]))
    elif not hostfile and not conf:
        click.echo(host_file(places, slots) + "\n" + topology_conf(places), nl=False)
    click.echo(describe(places), err=True)


@command.command(short_help="A job at 1, 2, 4 … nodes: speed and efficiency, measured beside predicted.")
@click.argument("spec", type=click.Path(exists=True, dir_okay=False))
@click.argument("job")
@click.option("--nodes", default="1,2,4", show_default=True, metavar="N,N", help="Node counts to run.")
@click.option("--weak", type=int, metavar="TOKENS", help="Global batch per node; without it the batch stays the same.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change one value of the spec; {nodes} is the count."
)
@click.option("--plot", "plot_file", type=Path, metavar="FILE", help="Draw the curves as SVG.")
@click.option("-o", "--output", type=Path, metavar="FILE", help="Write the result as JSON.")
@json_option
def scaling(
    spec: str, job: str, nodes: str, weak: int | None, overrides: tuple[str, ...], plot_file: Path | None,
    output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Submit JOB of SPEC at each node count, one after the other, and compare their speed."""
    from trainwright.bench.machine import result_header
    from trainwright.files import write_text
    from trainwright.report.scaling import facts, node_counts, scaling_picture, scaling_text, speed_of

    counts = node_counts(nodes)
    speeds = []
    for count in counts:
        changes = [f"jobs.{job}.nodes={count}", *(word.replace("{nodes}", str(count)) for word in overrides)]
        if weak:
            changes.append(f"jobs.{job}.batch.tokens={weak * count}")
        options = [spec, job, *(word for change in changes for word in ("--set", change))]
        guess = _predicted_rate(options)  # before the run: a submission to this machine's CPUs predicts nothing itself
        speeds.append(speed_of(_followed_run(options, []), count, guess))
    rows = facts(speeds)
    result = {**result_header("scaling"), "job": job, "weak": weak, "rows": rows}
    if plot_file:
        write_text(plot_file, scaling_picture(f"{job}: {'weak' if weak else 'strong'} scaling", speeds))
    if output:
        write_text(output, json.dumps(result, indent=1) + "\n")
    click.echo(json.dumps(result) if as_json else scaling_text(rows))
