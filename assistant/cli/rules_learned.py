"""`nightshift rules retire|activate|export`: what people do with rules that were learned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import door_of, user
from assistant.cli.options import DryRun, Json
from assistant.cli.output import print_block, print_json, print_line, print_pairs, print_record, print_table
from assistant.display import line
from assistant.errors import UsageError

if TYPE_CHECKING:
    from assistant.records import LearnedRule

Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the audit.")]


def _ids(context: typer.Context, incomplete: str) -> list[str]:
    return [rule.id for rule in door_of(context).store.rules() if rule.id.startswith(incomplete)]


LearnedId = Annotated[str, typer.Argument(metavar="ID", help="Id of a learned rule.", autocompletion=_ids)]


def retire_rule(context: typer.Context, rule: LearnedId, why: Why = "", as_json: Json = False) -> None:
    """Take a learned rule out: it counts no more, and its history stays."""
    from assistant.records import RuleState

    if not why.strip():
        raise UsageError(f"retiring {rule} needs a reason: --why 'it hid a warning that mattered'")
    retired = door_of(context).store.move_rule(rule, RuleState.RETIRED, by=f"cli:{user()}", why=why)
    _print_moved(retired, as_json)


def activate_rule(context: typer.Context, rule: LearnedId, why: Why = "", as_json: Json = False) -> None:
    """Let a rule on trial count as proven; a retired filter has to prove itself again."""
    from assistant.records import RuleKind, RuleState

    door = door_of(context)
    candidate = door.store.rule(rule)
    if not candidate.state.counts:
        if candidate.kind is not RuleKind.FILTER:
            raise UsageError(f"{rule} is a signature and {candidate.state}; teach it again with `nightshift incident correct`")
        from assistant.diagnose.knowledge import Knowledge
        from assistant.rules.learned import flaws, ground_of

        counting = [existing for existing in door.store.rules(counting=True) if existing.id != rule]
        knowledge = Knowledge.load(door.site).with_learned(counting)
        if bad := flaws(candidate, [], ground_of(knowledge.patterns, counting, site=door.site)):
            raise UsageError(f"{rule} cannot be used: {bad[0].what}" + (f": {bad[0].line[:200]!r}" if bad[0].line else ""))
    moved = door.store.move_rule(rule, RuleState.ACTIVE, by=f"cli:{user()}", why=why or "a person activated it")
    _print_moved(moved, as_json)


def export_rules(
    context: typer.Context,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Write files below it; without it they are printed.")
    ] = None,
    include_all: Annotated[bool, typer.Option("--all", help="Also those on trial.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write learned rules as content files, for review.

    What lies in the site's folder loads like what was shipped.
    """
    from assistant.records import RuleState
    from assistant.rules.learned import exported

    door = door_of(context)
    rules = [rule for rule in door.store.rules(counting=True) if include_all or rule.state is RuleState.ACTIVE]
    files = exported(rules, door.site)
    if not files:
        door.say("no learned rule is active" + ("" if include_all else "; --all exports those on trial as well"))
    for name, text in files.items():
        if to is not None and not dry_run:
            _write(to / name, text)
        if as_json:
            print_json({"path": str(to / name) if to is not None else name, "text": text})
        elif to is None:
            print_block(f"# {line(name)}\n{text}")
        else:
            print_line(to / name)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error


def list_learned(rules: list[LearnedRule], as_json: bool) -> None:
    """Print learned rules with their state, use and provenance."""
    if as_json:
        for rule in rules:
            print_record(rule)
        return
    rows = [(r.id, r.kind, r.state, r.hits, r.misses, r.by, r.task or "any", r.pattern) for r in rules]
    print_table(("id", "kind", "state", "hits", "misses", "by", "task", "pattern"), rows, colour_of=2)


def show_learned(rule: LearnedRule, as_json: bool) -> None:
    """Print one learned rule with its examples."""
    if as_json:
        print_record(rule)
        return
    print_pairs(
        [
            ("id", rule.id),
            ("kind", rule.kind),
            ("state", rule.state),
            ("of", rule.of),
            ("pattern", rule.pattern),
            ("counts in", rule.source),
            ("weight", rule.weight),
            ("proposed by", rule.by),
            ("why", rule.why),
            ("made", f"{rule.made:%Y-%m-%d %H:%M:%S} UTC"),
            ("incident", rule.incident),
            ("task", rule.task or "any"),
            ("hits", rule.hits),
            ("misses", rule.misses),
        ]
    )
    print_line()
    for example in rule.examples:
        print_line(f"  {example}")


def _print_moved(rule: LearnedRule, as_json: bool) -> None:
    if as_json:
        print_record(rule)
    else:
        print_line(f"{rule.id} is {rule.state}: {rule.why}")
