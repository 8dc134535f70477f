"""`nightshift audit`: the record of every decision, whether anybody has touched it, and what a person accepts after a look."""

from __future__ import annotations

import pydoc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Json, Limit, app, examples, invocation_of, row_number, row_number_or_0
from assistant.cli.output import Exit, local, print_json, print_line, print_record, print_table, user
from assistant.display import line
from assistant.errors import StoreChanged, Unavailable, UsageError

if TYPE_CHECKING:
    from assistant.store import BrokenRow, Findings, Store

MOST_UNPAGED = 100
"""Findings that are printed without a pager."""

audit_app = app(help="Show and verify the record of every decision.", no_args_is_help=True)


@audit_app.command(
    "show", epilog=examples("nightshift audit show", "nightshift audit show --incident 3", "nightshift audit show --json")
)
def show_audit(
    context: typer.Context,
    incident: Annotated[
        int | None, typer.Option("--incident", parser=row_number, metavar="ID", help="Only rows about this incident.")
    ] = None,
    after: Annotated[
        int, typer.Option("--after", parser=row_number_or_0, metavar="ROW", help="Only rows with a higher number.")
    ] = 0,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Show who did what, when, why, by which rule, and what came of it."""
    store = invocation_of(context).store
    if incident is not None:
        store.incident(incident)
    rows = store.audit(incident=incident, after=after, limit=limit)
    if as_json:
        for row in rows:
            print_record(row)
        return
    table = [
        (row.id, local(row.at), row.by, row.what, row.incident, row.call, row.rule, row.outcome, row.preview or row.why)
        for row in rows
    ]
    print_table(("row", "at", "by", "what", "incident", "call", "rule", "outcome", "change or why"), table)


@audit_app.command("head", epilog=examples("nightshift audit head", "nightshift audit head >> /mnt/other-host/audit-heads"))
def show_head(context: typer.Context, as_json: Json = False) -> None:
    """Print the newest row and its hash, to be kept elsewhere.

    `nightshift audit verify --since` compares with it.
    """
    head = invocation_of(context).store.head()
    if as_json:
        print_json({"row": head.row, "hash": head.hash})
    else:
        print_line(str(head))


@audit_app.command("anchor", epilog=examples("nightshift audit anchor", "nightshift audit anchor --json"))
def anchor_audit(context: typer.Context, as_json: Json = False) -> None:
    """Write the newest row and its hash to every place of `audit.anchor`.

    The watch does so by itself. Exit code 1 when a place did not take it.
    """
    from assistant.daemon.audit_anchors import anchor_line, write_anchor

    invocation = invocation_of(context)
    if not invocation.settings.audit.anchor:
        raise UsageError(
            'audit.anchor names no place; put [audit] anchor = ["syslog", "file:/PATH"] into config.toml: docs/audit.md'
        )
    head, failed = invocation.store.head(), False
    for place in invocation.settings.audit.anchor:
        try:
            write_anchor(invocation.settings, place, anchor_line(invocation.store, head), head.row)
            error = ""
        except Unavailable as why:
            failed, error = True, str(why)
        if as_json:
            print_json({"place": place, "row": head.row, "hash": head.hash, "taken": not error, "error": error})
        else:
            print_line(f"{place}: {error or head}", colour="red" if error else "green")
    if failed:
        raise typer.Exit(Exit.ERROR)


@audit_app.command(
    "verify",
    epilog=examples(
        "nightshift audit verify",
        "nightshift audit verify --since 4711:5f0c…",
        "nightshift audit verify --json >> /var/log/nightshift-audit.jsonl",
    ),
)
def verify_audit(
    context: typer.Context,
    since: Annotated[
        list[str] | None, typer.Option("--since", metavar="ROW:HASH", help="A head that was kept elsewhere; may be given again.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that nothing in the store was written past Nightshift.

    That is: no row of the audit and no sealed row of any table was changed, added or removed. Compares with the heads in the
    `file:` and `ssh:` places of `audit.anchor`, too. Exit code 1 and up to 20 findings when something was. What it promises
    and what not is in docs/audit.md.
    """
    from assistant.store import AuditHead

    invocation = invocation_of(context)
    store = invocation.store
    heads, notes = [AuditHead.parse(text) for text in since or ()], store.audit_notes()
    if invocation.settings.audit.anchor:
        from assistant.daemon.audit_anchors import anchored_heads

        try:
            for place, saved_head in anchored_heads(invocation.settings, store):
                heads += saved_head
                notes += [] if saved_head else [f"audit.anchor {place}: no head of this store is kept there yet"]
        except Unavailable as error:
            notes.append(str(error))
    breaks, head = store.broken_rows(since=heads), store.head()
    if as_json:
        findings = [{"row": finding.id, "why": finding.why} for finding in breaks]
        first = findings[0] if findings else None
        more = {"broken": first, "findings": findings, "compared": len(heads), "notes": notes}
        print_json({"ok": not breaks, "rows": head.row, "hash": head.hash, **more})
    else:
        for note in notes:
            print_line(f"note: {note}")
        compared = f", {len(heads)} heads that were kept agree" if heads else ""
        if not breaks:
            print_line(f"the audit holds: {head.row} rows{compared}, head {head}")
        for finding in breaks:
            print_line(f"the audit is broken at row {finding.id}: {finding.why}")
    if breaks:
        raise typer.Exit(Exit.ERROR)


@audit_app.command(
    "accept",
    epilog=examples('nightshift audit accept --why "Monday\'s backup after the disk broke; cluster looked at"'),
)
def accept_audit(
    context: typer.Context,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="What you found in the store and on the cluster.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Let the store count as it stands, after something was written past Nightshift.

    Until then no change is made. What was not as Nightshift wrote it is printed and kept in the audit; what is written while you
    look is shown and asked about again, and --yes accepts what there is at that moment. What was allowed and has not run must be
    asked for again. Look at the cluster first: what was changed after a copy was made is not in that copy.
    """
    store = invocation_of(context).store
    if not why.strip():
        raise UsageError("--why is empty; wanted what you found in the store and on the cluster: it is kept in the audit")
    findings = store.findings()
    if not findings.broken:
        broken = []
    elif yes:
        broken = store.accept(why=why, by=f"cli:{user()}")
        if not as_json:
            _print_findings(broken)
    elif as_json:
        raise UsageError(
            "nothing was accepted: with --json there is no question; look at `nightshift audit verify`, then add --yes"
        )
    else:
        broken = _ask_and_accept(store, findings, why)
    if as_json:
        print_json({"accepted": len(broken), "findings": [{"row": finding.id, "why": finding.why} for finding in broken]})
    else:
        words = "accepted: the store counts as it stands from here on" if broken else "the audit holds: there is nothing to accept"
        print_line(words, colour="green" if broken else "")


def _ask_and_accept(store: Store, findings: Findings, why: str) -> list[BrokenRow]:
    """Show what is not as Nightshift wrote it until what was shown is what a person accepts; return that."""
    while findings.broken:
        _print_findings(findings.broken)
        typer.confirm(f"Let the store count as it stands, with these {len(findings.broken)} findings?", abort=True)
        try:
            return store.accept(why=why, by=f"cli:{user()}", shown_findings=findings)
        except StoreChanged:
            print_line("The store was written while you looked, and nothing was accepted. Look again:", colour="yellow")
            findings = store.findings()
    return []


def _print_findings(broken: Sequence[BrokenRow]) -> None:
    """Print all findings, through a pager where they are many and somebody sits at the terminal."""
    texts = [f"row {finding.id}: {finding.why}" for finding in broken]
    if len(texts) > MOST_UNPAGED and sys.stdout.isatty():
        pydoc.pager("".join(f"{line(text)}\n" for text in texts))
    else:
        for text in texts:
            print_line(text)
    if any(finding.audit for finding in broken):
        print_line("Behind a broken row of the audit nothing can be compared: more may have been changed than is named.")
