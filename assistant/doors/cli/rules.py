"""`nightshift rules`: the patterns that diagnosis and compression look for, with where they come from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assistant.doors.cli.door import door_of
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.options import Json, one_of
from assistant.doors.cli.output import print_json, print_line, print_pairs, print_record, print_table
from assistant.doors.cli.rules_learned import activate_rule, export_rules, list_learned, retire_rule, show_learned
from assistant.doors.cli.rules_try import learn_rules, try_rule

if TYPE_CHECKING:
    from assistant.content.filters import Filter
    from assistant.content.reasons import Herring, Signature

rules_app = app(help="List, show, learn, test and retire signatures, herrings and filters.", no_args_is_help=True)
_ID, _LOG = "learned.cache-hit-1", "good/job.log"
for _name, _does, _lines in (
    ("test", try_rule, (f"nightshift rules test {_ID} {_LOG}", "nightshift rules test --pattern '^cache hit \\d+$' job.log")),
    (
        "learn",
        learn_rules,
        (f"nightshift rules learn {_LOG}", "nightshift rules learn --dry-run --task ada/llama/megatron/- *.log"),
    ),
    ("retire", retire_rule, (f"nightshift rules retire {_ID} --why 'it hid a warning'",)),
    ("activate", activate_rule, (f"nightshift rules activate {_ID}",)),
    ("export", export_rules, ("nightshift rules export", "nightshift rules export --to /etc/nightshift --all")),
):
    rules_app.command(_name, epilog=examples(*_lines))(_does)


class Kind(StrEnum):
    """The kinds of rule."""

    SIGNATURE = "signature"
    """Speaks for a reason."""
    HERRING = "herring"
    """Looks like a reason and must not count."""
    FILTER = "filter"
    """Folds routine lines away."""


class _Listed(NamedTuple):
    kind: Kind
    of: str
    """Its reason; what a filter folds."""
    rule: Signature | Herring | Filter


def _all(site: Path | None) -> dict[str, _Listed]:
    from assistant.content.filters import filters
    from assistant.content.reasons import reasons

    listed: dict[str, _Listed] = {}
    for reason in reasons(site).values():
        listed |= {entry.id: _Listed(Kind.SIGNATURE, reason.name, entry) for entry in reason.signature}
        listed |= {entry.id: _Listed(Kind.HERRING, reason.name, entry) for entry in reason.herring}
    return listed | {entry.id: _Listed(Kind.FILTER, entry.folds, entry) for entry in filters(site)}


def _ids(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _all(door_of(context).site) if name.startswith(incomplete)]


@rules_app.command("list", epilog=examples("nightshift rules list", "nightshift rules list --reason ecc_error --json"))
def list_rules(
    context: typer.Context,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only rules of this kind.")] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="REASON", help="Only rules that speak for or against this reason.")
    ] = "",
    learned: Annotated[bool, typer.Option("--learned", help="Those that were learned, with state, use and origin.")] = False,
    as_json: Json = False,
) -> None:
    """List the rules: id, kind, what they stand for, pattern."""
    if learned:
        found = [rule for rule in door_of(context).store.rules() if kind in (None, Kind(rule.kind))]
        list_learned([rule for rule in found if reason in ("", rule.of)], as_json)
        return
    site = door_of(context).site
    if reason:
        from assistant.content.reasons import reasons

        one_of(reason, reasons(site), "reason", "nightshift rules list")
    listed = {
        name: entry
        for name, entry in _all(site).items()
        if (kind is None or entry.kind == kind) and (not reason or (entry.of == reason and entry.kind != Kind.FILTER))
    }
    if as_json:
        for name, entry in listed.items():
            print_json({"id": name, "kind": entry.kind, "of": entry.of, "pattern": entry.rule.pattern})
    else:
        rows = [(name, entry.kind, entry.of, entry.rule.pattern) for name, entry in listed.items()]
        print_table(("id", "kind", "of", "pattern"), rows)


@rules_app.command("show", epilog=examples("nightshift rules show ecc_error.xid48", "nightshift rules show ecc_error.xid48 --json"))
def show_rule(
    context: typer.Context,
    rule: Annotated[str, typer.Argument(metavar="ID", help="Id of the rule.", autocompletion=_ids)],
    as_json: Json = False,
) -> None:
    """Show one rule with its examples and where it counts."""
    known = _all(door_of(context).site)
    if rule not in known:
        for learned in door_of(context).store.rules():
            if learned.id == rule:
                show_learned(learned, as_json)
                return
    listed = one_of(rule, known, "rule", "nightshift rules list")
    if as_json:
        print_record(listed.rule, kind=listed.kind, of=listed.of)
        return
    entry = listed.rule
    where = ", ".join(str(source) for source in getattr(entry, "where", ()))
    print_pairs(
        [
            ("id", entry.id),
            ("kind", listed.kind),
            ("of", listed.of),
            ("pattern", entry.pattern),
            ("role", getattr(entry, "role", None)),
            ("counts in", where),
            ("weight", getattr(entry, "weight", None)),
            ("action", getattr(entry, "action", None)),
            ("printed by", getattr(entry, "versions", None)),
            ("why not", getattr(entry, "why", None)),
        ]
    )
    print_line()
    for example in entry.examples:
        print_line(f"  {example}")
