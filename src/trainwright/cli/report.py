"""`trainwright report`: one page about a run, predicted beside measured; several runs side by side."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("-o", "--output", type=Path, metavar="FILE", help="Where the page goes; default: report.html here.")
@click.option("--bench", "benches", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
              metavar="FILE", help="A result of `bench -o` to show beside the run; may be repeated.")  # fmt: skip
@click.option("--md", "as_markdown", is_flag=True, help="Print Markdown, for a pull request.")
@click.option("--json", "as_json", is_flag=True, help="Print everything the page holds as JSON.")
def command(
    runs: tuple[str, ...], output: Path | None, benches: tuple[Path, ...], as_markdown: bool, as_json: bool
) -> None:
    """Write one self-contained HTML page about RUN: the name of a run (or `last`), a run folder, or the log of any
    framework that is understood. With several RUNs they are compared side by side."""
    from trainwright.files import write_text
    from trainwright.report.run_report.collect import collect

    if as_json and as_markdown:
        raise click.UsageError("--md and --json exclude each other")
    reports = [collect(word, benches) for word in runs]
    if as_json:
        plain = [dataclasses.asdict(report) for report in reports]
        text = json.dumps(plain[0] if len(plain) == 1 else plain, indent=1) + "\n"
    elif as_markdown:
        from trainwright.report.run_report.markdown import markdown

        text = markdown(reports)
    else:
        from trainwright.report.run_report.html import page

        text, output = page(reports), output or Path("report.html")
    if output is None:
        click.echo(text, nl=False)
        return
    write_text(output, text)
    click.echo(str(output))
