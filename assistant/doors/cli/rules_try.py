"""`nightshift rules test|learn`: what a rule would match, and rules made from logs of good runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.doors.cli.door import Door, door_of
from assistant.doors.cli.options import DryRun, Json
from assistant.doors.cli.output import print_json, print_line, print_table
from assistant.errors import ContentError, InputError, UsageError

if TYPE_CHECKING:
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.routine import Routine
    from assistant.ports import RuleWriter
    from assistant.records import LearnedRule
    from assistant.rules.matching import Entry

SHOWN = 5
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
    door = door_of(context)
    entry = _filter_of(pattern) if pattern else _entry(door, logs[0])
    flaws = _proof(door, entry)
    for flaw in flaws[:SHOWN]:
        door.say(f"proof: {flaw}")
    files = logs if pattern else logs[1:]
    total = 0
    for file in files if _is_safe(entry) else []:
        total += _tried(door, entry, file, as_json)
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
    from assistant.diagnose.routine import routine_of

    door = door_of(context)
    known = door.store.rules()
    shipped = Knowledge.load(door.site)
    writer = _writer(door)
    for path in logs:
        knowledge = shipped.with_learned(known)
        at = datetime.now(UTC)
        taken = {rule.id for rule in known}
        found = routine_of(path, knowledge, at=at, task=task, rules=known, taken=taken, least=least, site=door.site, writer=writer)
        known += found.rules
        if not dry_run:
            _keep(door, path, found)
        _print_routine(door, path, found, as_json)


def _writer(door: Door) -> RuleWriter | None:
    """Return the configured model, where its trial showed that it writes rules better than what there is without it."""
    from assistant.engine.masking import mask_for
    from assistant.llm.models import identity, is_set, open_chat
    from assistant.llm.trial import FILTER

    used = door.settings.model
    if not is_set(used) or not door.store.may(identity(used), FILTER):
        return None
    from assistant.llm.rule_writer import ModelWriter

    chat = open_chat(used, site=door.site, mask=mask_for(door.settings, door.store))
    return ModelWriter(used.path.name if used.path is not None else used.name, chat) if chat is not None else None


def _keep(door: Door, path: Path, found: Routine) -> None:
    for rule in found.rules:
        if rule.state.counts:
            door.store.add_rule(rule)
    if found.healthy:
        door.store.keep_templates(found.task, str(path.resolve()), found.state)


def _print_routine(door: Door, path: Path, found: Routine, as_json: bool) -> None:
    how = "a good run" if found.healthy else "not a good run: only what stands before its failure was looked at"
    door.say(f"{path}: task {found.task}; {how}; {sum(rule.state.counts for rule in found.rules)} rules")
    if as_json:
        for rule in found.rules:
            row = {"id": rule.id, "state": rule.state, "lines": found.covers[rule.id], "pattern": rule.pattern, "why": rule.why}
            print_json({"log": str(path), "task": found.task, **row})
    elif found.rules:
        rows = [(r.id, r.state, found.covers[r.id], r.pattern if r.state.counts else r.why) for r in found.rules]
        print_table(("id", "state", "lines", "pattern or why not"), rows, colour_of=1)


def _entry(door: Door, rule: str) -> Entry:
    from assistant.content.filters import filters
    from assistant.content.reasons import reasons
    from assistant.doors.cli.options import one_of
    from assistant.rules.learned import entry_of

    known: dict[str, Entry] = {learned.id: entry_of(learned) for learned in door.store.rules()}
    for reason in reasons(door.site).values():
        known |= {entry.id: entry for entry in reason.signature}
        known |= {entry.id: entry for entry in reason.herring}
    known |= {entry.id: entry for entry in filters(door.site)}
    return one_of(rule, known, "rule", "nightshift rules list; --pattern tries a new one")


def _filter_of(pattern: str) -> Entry:
    from assistant.content.filters import Filter
    from assistant.rules.voting import ended

    return Filter(TRIED, ended(pattern), (), "lines of the pattern")


def _proof(door: Door, entry: Entry) -> list[str]:
    """Return what the proof of a filter finds; only filters that were not shipped need one."""
    from assistant.content.filters import Filter, filters
    from assistant.rules.admission import flaws, ground_of

    if not isinstance(entry, Filter) or entry in filters(None):
        return []
    others = [rule for rule in door.store.rules(counting=True) if rule.id != entry.id]
    found = flaws(_as_rule(entry), [], ground_of(_knowledge(door, others).patterns, others, site=door.site))
    return [f"{flaw.what}: {flaw.line[:200]!r}" if flaw.line else flaw.what for flaw in found]


def _is_safe(entry: Entry) -> bool:
    """Tell whether the pattern may be run: what was kept already may, a new one only when it is no bomb."""
    from assistant.rules.bombs import Refused, shape_of

    try:
        return entry.id != TRIED or shape_of(entry.pattern) is not None
    except Refused:
        return False


def _knowledge(door: Door, rules: list[LearnedRule]) -> Knowledge:
    from assistant.diagnose.knowledge import Knowledge

    return Knowledge.load(door.site).with_learned(rules)


def _as_rule(entry: Entry) -> LearnedRule:
    from datetime import UTC, datetime

    from assistant.records import LearnedRule, RuleKind, RuleState

    made = datetime.now(UTC)
    return LearnedRule(entry.id, RuleKind.FILTER, entry.pattern, entry.examples, "", RuleState.PROPOSED, "cli", "", made)


def _tried(door: Door, entry: Entry, file: str, as_json: bool) -> int:
    """Print the first lines of a log that a rule matches and return how many there are."""
    from assistant.logs.search import search
    from assistant.rules.matching import Patterns

    try:
        single = Patterns([entry])
        found = search(file, lambda block: [*single.telling(block), *single.routine(block)][1::2], most=2 * SHOWN)
    except ContentError as error:
        raise UsageError(f"the pattern cannot be used: {error}") from error
    except InputError:
        if not Path(file).exists() and file != "-":
            raise UsageError(f"there is no log {file!r}; wanted: nightshift rules test ID LOG...") from None
        raise
    for line in found.lines[:SHOWN]:
        if as_json:
            print_json({"log": file, "line": line.number, "text": line.text})
        else:
            print_line(f"{file}:{line.number}: {line.text}")
    if found.total > SHOWN:
        door.say(f"{file}: {found.total - SHOWN:,} more")
    return found.total
