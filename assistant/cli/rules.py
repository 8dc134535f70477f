"""`nightshift rules`: the patterns that diagnosis and compression look for, with where they come from, and learned ones."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from assistant.cli.context import DryRun, Invocation, Json, app, examples, invocation_of, one_of
from assistant.cli.output import print_block, print_json, print_line, print_pairs, print_record, print_table, user
from assistant.display import line
from assistant.errors import ContentError, InputError, UsageError
from assistant.output_files import output_folder, write_output
from assistant.redact import head_of

if TYPE_CHECKING:
    from assistant.content.reading import Filter
    from assistant.content.reasons import Herring, Signature
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.learning.routine import Routine
    from assistant.ports import RuleWriter
    from assistant.records import LearnedRule
    from assistant.rules.matching import Entry


Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, for the audit.")]


def _learned_ids(context: typer.Context, incomplete: str) -> list[str]:
    return [rule.id for rule in invocation_of(context).store.rules() if rule.id.startswith(incomplete)]


LearnedId = Annotated[str, typer.Argument(metavar="ID", help="Id of a learned rule.", autocompletion=_learned_ids)]


def retire_rule(context: typer.Context, rule: LearnedId, why: Why = "", as_json: Json = False) -> None:
    """Take a learned rule out: it counts no more, and its history stays."""
    from assistant.records import RuleState

    if not why.strip():
        raise UsageError(f"retiring {rule} needs a reason: --why 'it hid a warning that mattered'")
    retired = invocation_of(context).store.move_rule(rule, RuleState.RETIRED, by=f"cli:{user()}", why=why)
    _print_moved(retired, as_json)


def activate_rule(context: typer.Context, rule: LearnedId, why: Why = "", as_json: Json = False) -> None:
    """Let a rule on trial count as proven; a retired filter has to prove itself again."""
    from assistant.records import RuleKind, RuleState

    invocation = invocation_of(context)
    candidate = invocation.store.rule(rule)
    if not candidate.state.counts:
        if candidate.kind is not RuleKind.FILTER:
            raise UsageError(f"{rule} is a signature and {candidate.state}; teach it again with `nightshift incident correct`")
        from assistant.diagnose.knowledge import Knowledge
        from assistant.rules.learned import flaws, ground_of

        counting = [existing for existing in invocation.store.rules(counting=True) if existing.id != rule]
        knowledge = Knowledge.load(invocation.site).with_learned(counting)
        if bad := flaws(candidate, [], ground_of(knowledge.patterns, counting, site=invocation.site)):
            raise UsageError(f"{rule} cannot be used: {bad[0].why}" + (f": {head_of(bad[0].line, 200)!r}" if bad[0].line else ""))
    moved = invocation.store.move_rule(rule, RuleState.ACTIVE, by=f"cli:{user()}", why=why or "a person activated it")
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

    invocation = invocation_of(context)
    rules = [rule for rule in invocation.store.rules(counting=True) if include_all or rule.state is RuleState.ACTIVE]
    files = exported(rules, invocation.site)
    if not files:
        invocation.say("no learned rule is active" + ("" if include_all else "; --all exports those on trial as well"))
    for name, text in files.items():
        if to is not None and not dry_run:
            write_output(output_folder((to / name).parent) / Path(name).name, text)
        if as_json:
            print_json({"path": str(to / name) if to is not None else name, "text": text})
        elif to is None:
            print_block(f"# {line(name)}\n{text}")
        else:
            print_line(to / name)


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


# `nightshift rules test|learn`: what a rule would match, and rules made from logs of good runs.

MOST_EXAMPLES = 5
"""Lines shown of each file."""
TRIED = "pattern"
"""Id of a pattern that is no rule yet."""

Logs = Annotated[list[Path], typer.Argument(metavar="LOG...", help="Logs, .gz too.")]


def try_rule(
    context: typer.Context,
    logs: Annotated[list[str], typer.Argument(metavar="[ID] LOG...", help="Id of a rule, unless --pattern; then logs, .gz too.")],
    pattern: Annotated[str, typer.Option("--pattern", metavar="REGEX", help="Try this as a filter instead of a rule.")] = "",
    as_json: Json = False,
) -> None:
    """Show which lines a rule matches, and whether the proof of a filter holds.

    Rules that were shipped are proven already; a learned filter, or a new pattern, is proven here.
    """
    invocation = invocation_of(context)
    entry = _filter_of(pattern) if pattern else _entry(invocation, logs[0])
    flaws = _proof(invocation, entry)
    for flaw in flaws[:MOST_EXAMPLES]:
        invocation.say(f"proof: {flaw}")
    files = logs if pattern else logs[1:]
    total = 0
    for file in files if _is_safe(entry) else []:
        total += _print_matches(invocation, entry, file, as_json)
    verdict = "holds" if not flaws else "fails"
    if as_json:
        print_json({"id": entry.id, "pattern": entry.pattern, "matched": total, "proof": verdict, "flaws": flaws})
    else:
        print_line(f"{entry.id}: {total:,} lines in {len(files)} logs; its proof {verdict}")


def learn_rules(
    context: typer.Context,
    logs: Logs,
    task: Annotated[str, typer.Option("--task", metavar="KEY", help="Key of the task; else it is taken from each log.")] = "",
    least: Annotated[int, typer.Option("--least", min=2, metavar="N", help="Lines of one form that make a rule.")] = 20,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Write filters for the routine lines of logs, each under proof.

    Of a good run its templates are kept as well, so that what is new in a failing run of the task shows. Of a log that ends in a
    failure only what stands before it counts, and nothing at its end is hidden.
    """
    from datetime import UTC, datetime

    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.learning.routine import routine_of

    invocation = invocation_of(context)
    rules = invocation.store.rules()
    shipped = Knowledge.load(invocation.site)
    writer = _writer(invocation)
    for path in logs:
        knowledge = shipped.with_learned(rules)
        at = datetime.now(UTC)
        used_ids = {rule.id for rule in rules}
        learned = routine_of(
            path, knowledge, at=at, task=task, rules=rules, used_ids=used_ids, least=least, site=invocation.site, writer=writer
        )
        rules += learned.rules
        if not dry_run:
            _keep(invocation, path, learned)
        _print_routine(invocation, path, learned, as_json)


def _writer(invocation: Invocation) -> RuleWriter | None:
    """Return the configured model, where its trial showed that it writes rules better than what there is without it."""
    from assistant.engine.report import mask_for
    from assistant.llm.models import FILTER, identity, is_set, open_chat

    model = invocation.settings.model
    if not is_set(model) or not invocation.store.may(identity(model), FILTER):
        return None
    from assistant.llm.models import ModelWriter

    chat = open_chat(model, site=invocation.site, mask=mask_for(invocation.settings, invocation.store))
    return ModelWriter(model.path.name if model.path is not None else model.name, chat) if chat is not None else None


def _keep(invocation: Invocation, path: Path, routine: Routine) -> None:
    for rule in routine.rules:
        if rule.state.counts:
            invocation.store.add_rule(rule)
    if routine.healthy:
        invocation.store.keep_templates(routine.task, str(path.resolve()), routine.state)


def _print_routine(invocation: Invocation, path: Path, routine: Routine, as_json: bool) -> None:
    how = "a good run" if routine.healthy else "not a good run: only what stands before its failure was looked at"
    invocation.say(f"{path}: task {routine.task}; {how}; {sum(rule.state.counts for rule in routine.rules)} rules")
    if as_json:
        for rule in routine.rules:
            row = {"id": rule.id, "state": rule.state, "lines": routine.covers[rule.id], "pattern": rule.pattern, "why": rule.why}
            print_json({"log": str(path), "task": routine.task, **row})
    elif routine.rules:
        rows = [(r.id, r.state, routine.covers[r.id], r.pattern if r.state.counts else r.why) for r in routine.rules]
        print_table(("id", "state", "lines", "pattern or why not"), rows, colour_of=1)


def _entry(invocation: Invocation, rule: str) -> Entry:
    from assistant.cli.context import one_of
    from assistant.content.reading import filters
    from assistant.content.reasons import reasons
    from assistant.rules.learned import entry_of

    entries: dict[str, Entry] = {learned.id: entry_of(learned) for learned in invocation.store.rules()}
    for reason in reasons(invocation.site).values():
        entries |= {entry.id: entry for entry in reason.signature}
        entries |= {entry.id: entry for entry in reason.herring}
    entries |= {entry.id: entry for entry in filters(invocation.site)}
    return one_of(rule, entries, "rule", "nightshift rules list; --pattern tries a new one")


def _filter_of(pattern: str) -> Entry:
    from assistant.content.reading import Filter
    from assistant.rules.learned import ended

    return Filter(TRIED, ended(pattern), (), "lines of the pattern")


def _proof(invocation: Invocation, entry: Entry) -> list[str]:
    """Return what the proof of a filter finds; only filters that were not shipped need one."""
    from assistant.content.reading import Filter, filters
    from assistant.rules.learned import flaws, ground_of

    if not isinstance(entry, Filter) or entry in filters(None):
        return []
    counting = [rule for rule in invocation.store.rules(counting=True) if rule.id != entry.id]
    problems = flaws(_as_rule(entry), [], ground_of(_knowledge(invocation, counting).patterns, counting, site=invocation.site))
    return [f"{flaw.why}: {head_of(flaw.line, 200)!r}" if flaw.line else flaw.why for flaw in problems]


def _is_safe(entry: Entry) -> bool:
    """Tell whether the pattern may be run: what was kept already may, a new one only when it is no bomb."""
    from assistant.rules.patterns import RefusedPattern, shape_of

    try:
        return entry.id != TRIED or shape_of(entry.pattern) is not None
    except RefusedPattern:
        return False


def _knowledge(invocation: Invocation, rules: list[LearnedRule]) -> Knowledge:
    from assistant.diagnose.knowledge import Knowledge

    return Knowledge.load(invocation.site).with_learned(rules)


def _as_rule(entry: Entry) -> LearnedRule:
    from datetime import UTC, datetime

    from assistant.records import LearnedRule, RuleKind, RuleState

    at = datetime.now(UTC)
    return LearnedRule(entry.id, RuleKind.FILTER, entry.pattern, entry.examples, "", RuleState.PROPOSED, "cli", "", at)


def _print_matches(invocation: Invocation, entry: Entry, file: str, as_json: bool) -> int:
    """Print the first lines of a log that a rule matches and return how many there are."""
    from assistant.logs.tail import search
    from assistant.rules.matching import Patterns

    try:
        single = Patterns([entry])
        matches = search(file, lambda block: [*single.telling(block), *single.routine(block)][1::2], most=2 * MOST_EXAMPLES)
    except ContentError as error:
        raise UsageError(f"the pattern cannot be used: {error}") from error
    except InputError:
        if not Path(file).exists() and file != "-":
            raise UsageError(f"there is no log {file!r}; wanted: nightshift rules test ID LOG...") from None
        raise
    for match in matches.lines[:MOST_EXAMPLES]:
        if as_json:
            print_json({"log": file, "line": match.number, "text": match.text})
        else:
            print_line(f"{file}:{match.number}: {match.text}")
    if matches.total > MOST_EXAMPLES:
        invocation.say(f"{file}: {matches.total - MOST_EXAMPLES:,} more")
    return matches.total


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


class RuleListKind(StrEnum):
    """The kinds of rule."""

    SIGNATURE = "signature"
    """Speaks for a reason."""
    HERRING = "herring"
    """Looks like a reason and must not count."""
    FILTER = "filter"
    """Folds routine lines away."""


class _RuleRow(NamedTuple):
    kind: RuleListKind
    of: str
    """Its reason; what a filter folds."""
    rule: Signature | Herring | Filter


def _all(site: Path | None) -> dict[str, _RuleRow]:
    from assistant.content.reading import filters
    from assistant.content.reasons import reasons

    listed: dict[str, _RuleRow] = {}
    for reason in reasons(site).values():
        listed |= {entry.id: _RuleRow(RuleListKind.SIGNATURE, reason.name, entry) for entry in reason.signature}
        listed |= {entry.id: _RuleRow(RuleListKind.HERRING, reason.name, entry) for entry in reason.herring}
    return listed | {entry.id: _RuleRow(RuleListKind.FILTER, entry.folds, entry) for entry in filters(site)}


def _ids(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _all(invocation_of(context).site) if name.startswith(incomplete)]


@rules_app.command("list", epilog=examples("nightshift rules list", "nightshift rules list --reason ecc_error --json"))
def list_rules(
    context: typer.Context,
    kind: Annotated[RuleListKind | None, typer.Option("--kind", help="Only rules of this kind.")] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="REASON", help="Only rules that speak for or against this reason.")
    ] = "",
    learned: Annotated[bool, typer.Option("--learned", help="Those that were learned, with state, use and origin.")] = False,
    as_json: Json = False,
) -> None:
    """List the rules: id, kind, what they stand for, pattern."""
    if learned:
        matching = [rule for rule in invocation_of(context).store.rules() if kind in (None, RuleListKind(rule.kind))]
        list_learned([rule for rule in matching if reason in ("", rule.of)], as_json)
        return
    site = invocation_of(context).site
    if reason:
        from assistant.content.reasons import reasons

        one_of(reason, reasons(site), "reason", "nightshift rules list")
    listed = {
        name: entry
        for name, entry in _all(site).items()
        if (kind is None or entry.kind == kind) and (not reason or (entry.of == reason and entry.kind != RuleListKind.FILTER))
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
    entries = _all(invocation_of(context).site)
    if rule not in entries:
        for learned in invocation_of(context).store.rules():
            if learned.id == rule:
                show_learned(learned, as_json)
                return
    listed = one_of(rule, entries, "rule", "nightshift rules list")
    if as_json:
        print_record(listed.rule, kind=listed.kind, of=listed.of)
        return
    entry = listed.rule
    sources = ", ".join(str(source) for source in getattr(entry, "where", ()))
    print_pairs(
        [
            ("id", entry.id),
            ("kind", listed.kind),
            ("of", listed.of),
            ("pattern", entry.pattern),
            ("role", getattr(entry, "role", None)),
            ("counts in", sources),
            ("weight", getattr(entry, "weight", None)),
            ("action", getattr(entry, "action", None)),
            ("printed by", getattr(entry, "versions", None)),
            ("why not", getattr(entry, "why", None)),
        ]
    )
    print_line()
    for example in entry.examples:
        print_line(f"  {example}")
