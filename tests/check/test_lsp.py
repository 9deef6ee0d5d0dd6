"""The language server over standard input and output, with a real client of the protocol."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lsprotocol import types
from pygls.lsp.client import LanguageClient

from trainwright.check.finding import Edit, Finding
from trainwright.check.fixes import apply_edits
from trainwright.check.lsp import page_of
from trainwright.check.registry import all_rules
from trainwright.spec.source import Span

SCRIPT = '#!/bin/bash\n# größe 😀\nexport NCCL_DEBUG=WARN\nDIR=/fsx/a\nls "😀${DIR}}"\n'
SPEC = """name: train
platform: parallelcluster
region: us-east-2
queues:
  - name: p5
    instance: p5.48xlareg
    \n"""
Session = Callable[[LanguageClient, "asyncio.Queue[types.PublishDiagnosticsParams]"], Awaitable[None]]


def run(session: Session) -> None:
    """Start the server as an editor does, hand a client to the session, and end both."""

    async def whole() -> None:
        client = LanguageClient("test", "1")
        published: asyncio.Queue[types.PublishDiagnosticsParams] = asyncio.Queue()
        client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: published.put_nowait(params))
        main = "from trainwright.cli.main import main; main()"
        await client.start_io(sys.executable, "-c", main, "lsp", env=os.environ.copy())
        await client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
        client.initialized(types.InitializedParams())
        await session(client, published)
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()

    asyncio.run(asyncio.wait_for(whole(), 60))


def open_document(client: LanguageClient, uri: str, text: str) -> None:
    item = types.TextDocumentItem(uri, "text", 1, text)
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))


def changed(client: LanguageClient, uri: str, text: str) -> None:
    whole: Any = types.TextDocumentContentChangeWholeDocument(text)
    document = types.VersionedTextDocumentIdentifier(version=2, uri=uri)
    client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))


def as_span(place: types.Range, text: str) -> Span:
    """A range of UTF-16 units as characters counted from 1."""
    lines = text.split("\n")

    def column(position: types.Position) -> int:
        return len(lines[position.line].encode("utf-16-le")[: 2 * position.character].decode("utf-16-le")) + 1

    return Span(place.start.line + 1, column(place.start), place.end.line + 1, column(place.end))


def test_a_session_with_a_shell_script(tmp_path: Path) -> None:
    uri = (tmp_path / "train.sh").as_uri()

    async def session(client: LanguageClient, published: asyncio.Queue[types.PublishDiagnosticsParams]) -> None:
        open_document(client, uri, SCRIPT)
        [finding] = (await published.get()).diagnostics
        assert (finding.code, finding.source, finding.severity) == (
            "SHL001",
            "trainwright",
            types.DiagnosticSeverity.Warning,
        )
        document = types.TextDocumentIdentifier(uri)
        [action] = await client.text_document_code_action_async(
            types.CodeActionParams(document, finding.range, types.CodeActionContext([finding]))
        )
        [edit] = action.edit.changes[uri]
        fixed = apply_edits(SCRIPT, [Edit(as_span(edit.range, SCRIPT), edit.new_text)])
        assert fixed.endswith('ls "😀${DIR}"\n')  # the emoji is two units of UTF-16 and one character
        hover = await client.text_document_hover_async(types.HoverParams(document, finding.range.start))
        assert hover.contents.value.startswith("**SHL001**")
        assert "When to ignore" in hover.contents.value
        changed(client, uri, fixed)
        assert not (await published.get()).diagnostics
        client.text_document_did_close(types.DidCloseTextDocumentParams(document))
        assert not (await published.get()).diagnostics

    run(session)


def test_a_session_with_a_spec(tmp_path: Path) -> None:
    uri = (tmp_path / "cluster.yaml").as_uri()

    async def session(client: LanguageClient, published: asyncio.Queue[types.PublishDiagnosticsParams]) -> None:
        open_document(client, uri, SPEC)
        findings = (await published.get()).diagnostics
        assert any("p5.48xlareg" in one.message and one.range.start.line == 5 for one in findings)
        document = types.TextDocumentIdentifier(uri)

        async def complete(line: int, column: int) -> list[str]:
            params = types.CompletionParams(document, types.Position(line, column))
            return [item.label for item in await client.text_document_completion_async(params)]

        assert {"count", "capacity", "efa"} <= set(await complete(6, 4))
        assert {"storage", "jobs"} <= set(await complete(6, 0))
        assert {"parallelcluster", "eks", "local"} <= set(await complete(1, 10))
        hover = await client.text_document_hover_async(types.HoverParams(document, types.Position(3, 2)))
        assert hover.contents.value == "Groups of equal nodes."
        other = (tmp_path / "notes.txt").as_uri()
        open_document(client, other, "hello\n")
        assert not (await published.get()).diagnostics

    run(session)


def test_without_pygls_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainwright.cli.main import cli

    monkeypatch.setitem(sys.modules, "pygls", None)
    result = CliRunner().invoke(cli, ["lsp"])
    assert result.exit_code != 0
    assert "trainwright[lsp]" in (result.output + str(result.exception) + repr(getattr(result.exception, "fix", "")))


NEOVIM = """
local file, out = vim.env.CHECKED_FILE, vim.env.REPORT
vim.cmd("edit " .. file)
local client = vim.lsp.start_client({name = "trainwright", cmd = {vim.env.PYTHON, "-c", vim.env.MAIN, "lsp"}})
vim.lsp.buf_attach_client(0, client)
vim.wait(30000, function() return #vim.diagnostic.get(0) > 0 end, 50)
local report = {}
for _, one in ipairs(vim.diagnostic.get(0)) do
  table.insert(report, one.lnum .. " " .. one.col .. " " .. one.code .. " " .. one.source)
end
local params = vim.lsp.util.make_given_range_params({5, 0}, {5, 40})
params.context = {diagnostics = {}}
local answers = vim.lsp.buf_request_sync(0, "textDocument/codeAction", params, 30000)
for _, answer in pairs(answers or {}) do
  for _, action in ipairs(answer.result or {}) do vim.lsp.util.apply_workspace_edit(action.edit, "utf-16") end
end
table.insert(report, vim.api.nvim_buf_get_lines(0, 4, 5, false)[1])
vim.fn.writefile(report, out)
vim.cmd("qall!")
"""


@pytest.mark.skipif(shutil.which("nvim") is None, reason="neovim is not installed")
def test_neovim_shows_a_finding_and_applies_its_fix(tmp_path: Path) -> None:
    script, program, report = tmp_path / "train.sh", tmp_path / "try.lua", tmp_path / "report.txt"
    script.write_text(SCRIPT)
    program.write_text(NEOVIM)
    environment = os.environ | {
        "CHECKED_FILE": str(script), "REPORT": str(report), "PYTHON": sys.executable, "HOME": str(tmp_path),
        "MAIN": "from trainwright.cli.main import main; main()",
    }  # fmt: skip
    subprocess.run(
        ["nvim", "--headless", "--clean", "-c", f"luafile {program}"], env=environment, timeout=90, check=True,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert report.read_text().splitlines() == ["4 14 SHL001 trainwright", 'ls "😀${DIR}"']


def test_the_page_shows_the_reason_of_this_case() -> None:
    rule = next(rule for rule in all_rules() if rule.code == "CAP001")
    own = Finding("CAP001", "error", "f.yaml", Span(1, 1, 1, 2), "m", why="this case is special")
    assert "Why: this case is special\n\n" in page_of(own)
    assert page_of(replace(own, why=rule.reason)).count("Why: ") == 1
