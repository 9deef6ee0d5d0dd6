"""The `trainwright` command. Verbs are listed in a table and imported only when one is used, so `--help` stays fast."""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import sys

import click

from trainwright import __version__
from trainwright.errors import UserError, did_you_mean

# verb -> what it does. The code of a verb is `trainwright.cli.<verb>`, which holds a click command named `command`.
VERBS: dict[str, str] = {
    "demo": "The whole story, for real, on this machine: about two minutes.",
    "init": "Write a starter spec from a reference architecture.",
    "adopt": "Turn an sbatch script, a job manifest or a cluster file into a spec.",
    "discover": "Read a running Slurm or Kubernetes cluster into a spec, without changing it.",
    "check": "Find mistakes in a spec, or in cluster and job files written by hand.",
    "predict": "Predict step time, memory, cost and duration of a job before anyone pays.",
    "advise": "Search machines and plans for the cheapest or fastest way to train a model.",
    "plan": "Write every file that would be deployed, with the price and what would change.",
    "up": "Start the cluster of a spec: on platform local, a real Slurm in seconds.",
    "down": "Stop a cluster and remove what was started for it.",
    "status": "Show a cluster's queues and nodes.",
    "connect": "Open a shell on a cluster's head node.",
    "iam": "Print the least-privilege policies that a plan needs.",
    "explain": "Say why a cluster did not come up, from its logs or its stack.",
    "submit": "Hand a job to the cluster's scheduler.",
    "jobs": "List the waiting and running jobs of all schedulers.",
    "logs": "Print or follow the output of a run's ranks.",
    "cancel": "End a job and all of its processes.",
    "resume": "Continue a lost, failed or cancelled run from its newest checkpoint.",
    "drill": "Cause the faults of a long run on purpose and print what each cost.",
    "health": "Check this node, or every node of a cluster, with a verdict a scheduler can act on.",
    "versions": "Show what is installed on the host and in a container, and whether it fits.",
    "profile": "Show where the time of a run's steps goes, measured beside predicted.",
    "runs": "List earlier runs, show one, compare two.",
    "watch": "Watch jobs and runs live, in the terminal or as a local page.",
    "report": "Write one page about a run, predicted beside measured; compare several runs.",
    "train": "Train a model: alone, under torchrun, or under srun.",
    "data": "Turn text into token shards, show them, verify their checksums.",
    "bench": "Measure collectives, devices, storage and loaders; judge them by what the hardware can do.",
    "lsp": "Check files while they are written: the language server for editors.",
    "schema": "Print the JSON schema of the spec, for editors.",
    "image": "Write container images and machine images from one version set.",
    "recipes": "List the training jobs that come with Trainwright.",
    "catalog": "Look up instance types, accelerators, models and prices.",
}


# Errors of the disk or its permissions: the state of the machine, not a bug.
REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR}
INTERRUPTED = 130  # the shell's status of a command ended by Ctrl-C; 1 would mean findings


class LazyVerbs(click.Group):
    """A click group that knows its verbs by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command = importlib.import_module(f"trainwright.cli.{name}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            hint = did_you_mean(args[0], VERBS)
            raise click.UsageError(f"no verb {args[0]!r}: {hint or 'see `trainwright --help`'}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=LazyVerbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="trainwright")
def cli() -> None:
    """One file describes a training cluster and its jobs. Check it, predict it, build it, run it, prove it."""


def main() -> None:
    """Run the command line; a user's mistake is printed in three parts, never as a traceback."""
    # Imports create many objects and little garbage; a collection every 700 allocations slows a short command down.
    gc.set_threshold(20_000)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without Unicode gets `?` for a box, not a traceback
            stream.reconfigure(errors="replace")
    try:
        cli(standalone_mode=True)
    except UserError as error:
        print_user_error(error)
        sys.exit(error.status)
    except BrokenPipeError:
        # The reader (`| head`) closed the pipe: exit without a message.
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        print_error(refusal(error))
        sys.exit(2)


def refusal(error: OSError) -> UserError:
    """An error of the operating system, in three parts."""
    from trainwright.home import home

    return UserError(
        str(error.strerror),
        where=str(error.filename or ""),
        fix=f"free space or change permissions; clusters and runs are kept in {home()}, which $TRAINWRIGHT_HOME moves",
    )


def print_user_error(error: UserError) -> None:
    """One error in three parts; all of them where a spec has several."""
    from trainwright.spec.mistakes import SpecError

    if isinstance(error, SpecError):
        for mistake in error.mistakes:
            print_error(UserError(mistake.what, where=mistake.span.at(mistake.file), fix=mistake.fix))
    elif hasattr(error, "result"):
        from trainwright.check.gate import CheckFailed
        from trainwright.cli.findings import show_refusal

        assert isinstance(error, CheckFailed)
        show_refusal(error)
    else:
        print_error(error)


def print_error(error: UserError) -> None:
    """What is wrong, where, how to fix it: on stderr, in colour only on a terminal."""
    plain = False if os.environ.get("NO_COLOR") else None
    click.echo(click.style("error: ", fg="red", bold=True) + error.what, err=True, color=plain)
    if error.where:
        click.echo(click.style("   at: ", dim=True) + error.where, err=True, color=plain)
    if error.fix:
        click.echo(click.style("  fix: ", fg="green") + error.fix, err=True, color=plain)
