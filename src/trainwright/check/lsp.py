"""The language server behind `trainwright lsp`: findings while one types, quick fixes, a rule's page on hover, and
completion for specs. It speaks over standard input and output; pygls does the protocol."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from trainwright import __version__
from trainwright.check.completion import about, is_spec, proposals
from trainwright.check.config import load_config
from trainwright.check.engine import RulePlan, Selection, check_text
from trainwright.check.examples import example_of
from trainwright.check.finding import Edit, Finding
from trainwright.check.own_codes import OWN_CODES
from trainwright.check.registry import Rule, all_rules
from trainwright.errors import UserError
from trainwright.spec.source import Span

SOURCE = "trainwright"
_SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}


class CheckServer(LanguageServer):
    """A language server that remembers the findings of every open document."""

    def __init__(self) -> None:
        super().__init__("trainwright", __version__)
        self.findings: dict[str, list[Finding]] = {}

    def publish(self, uri: str) -> None:
        """Check a document as it stands in the editor and show the findings."""
        document = self.workspace.get_text_document(uri)
        self.findings[uri] = findings_of(document)
        self.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=uri,
                version=document.version,
                diagnostics=[self.diagnostic(document, one) for one in self.findings[uri]],
            )
        )

    def range(self, document: TextDocument, span: Span) -> types.Range:
        """A span in the units of the client: ours counts characters from 1."""
        last = max(0, len(document.lines) - 1)
        start = types.Position(min(span.line - 1, last), span.column - 1)
        end = types.Position(min(span.end_line - 1, last + 1), max(span.end_column - 1, 0))
        return self.workspace.position_codec.range_to_client_units(document.lines, types.Range(start, end))

    def diagnostic(self, document: TextDocument, finding: Finding) -> types.Diagnostic:
        return types.Diagnostic(
            self.range(document, finding.span),
            finding.message + (f"\nFix: {finding.fix}" if finding.fix else ""),
            severity=_SEVERITIES[finding.level],
            code=finding.code,
            source=SOURCE,
        )

    def action(self, document: TextDocument, finding: Finding, edit: Edit) -> types.CodeAction:
        change = types.TextEdit(self.range(document, edit.span), edit.text)
        return types.CodeAction(
            title=f"{finding.code}: {finding.fix or 'fix it'}",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=[self.diagnostic(document, finding)],
            edit=types.WorkspaceEdit(changes={document.uri: [change]}),
            is_preferred=edit.safe,
        )


def findings_of(document: TextDocument) -> list[Finding]:
    """The findings of a buffer; none for a file of no kind that `check` knows."""
    path = to_fs_path(document.uri) or document.uri
    try:
        plan = RulePlan.of(Selection(), {}, load_config(Path(path).parent))
        result = check_text(path, lambda: document.source, True, plan)
    except UserError:
        return []
    return [finding for finding in result.findings if finding.file == path]


def page_of(finding: Finding) -> str:
    """A rule's page, for hover: what it says, and an example."""
    rules: list[Rule] = [rule for rule in (*all_rules(), *OWN_CODES) if rule.code == finding.code]
    parts = [f"**{finding.code}** ({finding.level}): {finding.message}"]
    if finding.why and all(finding.why != rule.reason for rule in rules):
        parts.append(f"Why: {finding.why}")
    parts += [rule.document for rule in rules[:1]]
    example = example_of(finding.code) if rules else []
    for title, block in zip(example[::2], example[1::2], strict=True):
        parts += [f"**{title}**", f"```\n{block}\n```"]
    return "\n\n".join(parts)


def create() -> CheckServer:
    """The server with its features; nothing runs until it is started."""
    server = CheckServer()
    opened: list[tuple[str, Callable[[Any], None]]] = [
        (types.TEXT_DOCUMENT_DID_OPEN, lambda params: server.publish(params.text_document.uri)),
        (types.TEXT_DOCUMENT_DID_CHANGE, lambda params: server.publish(params.text_document.uri)),
        (types.TEXT_DOCUMENT_DID_SAVE, lambda params: server.publish(params.text_document.uri)),
    ]
    for name, handler in opened:
        server.feature(name)(handler)

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: types.DidCloseTextDocumentParams) -> None:
        server.findings.pop(params.text_document.uri, None)
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(params.text_document.uri, []))

    @server.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix])
    )
    def fixes(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.workspace.get_text_document(params.text_document.uri)
        return [
            server.action(document, finding, finding.edit)
            for finding in server.findings.get(document.uri, [])
            if finding.edit is not None and _overlap(server.range(document, finding.span), params.range)
        ]

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        here = types.Range(params.position, params.position)
        for finding in server.findings.get(document.uri, []):
            place = server.range(document, finding.span)
            if _overlap(place, here):
                return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, page_of(finding)), place)
        said = about(document.source, params.position.line, _column(server, document, params.position))
        described = said if said and is_spec(document.source) else ""
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, described)) if described else None

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[":", " "]))
    def complete(params: types.CompletionParams) -> list[types.CompletionItem]:
        document = server.workspace.get_text_document(params.text_document.uri)
        if not is_spec(document.source):
            return []
        column = _column(server, document, params.position)
        return [
            types.CompletionItem(
                one.text,
                kind=types.CompletionItemKind.Property if one.is_key else types.CompletionItemKind.Value,
                documentation=one.about or None,
                insert_text=f"{one.text}: " if one.is_key else one.text,
            )
            for one in proposals(document.source, params.position.line, column)
        ]

    return server


def _column(server: CheckServer, document: TextDocument, position: types.Position) -> int:
    return server.workspace.position_codec.position_from_client_units(document.lines, position).character


def _overlap(one: types.Range, other: types.Range) -> bool:
    def order(position: types.Position) -> tuple[int, int]:
        return position.line, position.character

    return order(one.start) <= order(other.end) and order(other.start) <= order(one.end)
