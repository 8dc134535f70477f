"""Learn from logs what is routine: filters for lines that none covers yet, and what good runs of a task look like."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from assistant.content.reasons import Role, Signature
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.errors import NightshiftError
from assistant.logs.lines import Line
from assistant.logs.templates import LONGEST, Miner, Template, homes, task_key
from assistant.ports import RuleWriter
from assistant.records import LearnedRule, RuleKind, RuleState
from assistant.rules.learned import admitted, ground_of, voted
from assistant.rules.matching import name_of, pattern_of

LEAST = 20
"""Lines of a template that make a rule worth while."""
MOST_RULES = 50
"""Rules that are written from one log, those for the most lines."""
PROVEN = 100
"""Lines of a template that its rule is tried on."""
MOST_ASKED = 10
"""Forms of lines of one log for which a model is asked."""
SHOWN_TO_WRITER = 12
END = 50
"""Lines before the end of a failing log that people must see."""
_SHOWN_LINES = 60


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Routine:
    """What one log taught."""

    task: str
    healthy: bool
    """Whether the whole log was free of failures; else only what stands before them was looked at."""
    rules: tuple[LearnedRule, ...]
    """On trial where the proof holds, else as proposed with what it found; those for the most lines first."""
    covers: Mapping[str, int]
    """Lines by id of the rule."""
    state: Mapping[str, Any]
    """The templates as JSON, for the store: a baseline when the log is healthy."""


def learn_routine(
    facts: Facts,
    knowledge: Knowledge,
    *,
    healthy: bool,
    at: datetime,
    task: str = "",
    rules: Iterable[LearnedRule] = (),
    used_ids: Collection[str] = (),
    least: int = LEAST,
    site: Path | None = None,
    writer: RuleWriter | None = None,
) -> Routine:
    """Return the filters that a log teaches, each with its proof made, and its templates.

    Args:
        facts: Of the log, gathered with `knowledge`.
        knowledge: With what was learned already, so that nothing is learned twice.
        healthy: Whether the job is known to have ended well.
        at: Now.
        task: Key of the task; taken from the log when empty.
        rules: Learned ones; the examples of signatures are protected.
        used_ids: Ids that were used already.
        least: Lines of a template that are wanted.
        site: The site's folder.
        writer: Is asked for forms of lines for which there is no pattern without it; its proposals vote, the proof is the same.
    """
    task = task or task_key(facts.case.job, (line.text for line in facts.lines))
    lines, shown_lines = _stretch(facts, healthy)
    ground = ground_of(knowledge.patterns, rules, site=site, shown=shown_lines)
    miner = Miner()
    keys = miner.add([line.text for line in lines])
    written: list[LearnedRule] = []
    covers: dict[str, int] = {}
    templates = miner.templates()
    own = _own_lines(keys, lines, templates)
    requests = 0
    for template in templates:
        if template.count < least or len(written) == MOST_RULES:
            break
        mine = own.get(template.text, ())
        rule = _rule(template, task, at, {*used_ids, *covers})
        rule = admitted(rule, mine, ground) if rule is not None else None
        if (rule is None or not rule.state.counts) and writer is not None and requests < MOST_ASKED:
            requests += 1
            other_lines = [sibling.examples[0] for sibling in templates if sibling is not template and sibling.examples]
            better = _written_rule(writer, template, task, at, {*used_ids, *covers}, mine, other_lines)
            better = admitted(better, mine, ground) if better is not None else None
            rule = better if better is not None and better.state.counts else rule
        if rule is not None:
            written.append(rule)
            covers[rule.id] = template.count
    return Routine(task, healthy, tuple(written), covers, miner.to_json())


def _own_lines(keys: Sequence[str], lines: Sequence[Line], templates: Iterable[Template]) -> dict[str, list[str]]:
    """Return lines of each template, some from all over the log: the rule must cover them."""
    home = homes(keys, templates)
    every: dict[str, list[str]] = defaultdict(list)
    for key, line in zip(keys, lines, strict=True):
        every[home.get(key, "")].append(line.text)
    return {text: own[:: len(own) // PROVEN + 1] for text, own in every.items()}


def _rule(template: Template, task: str, at: datetime, used_ids: Collection[str]) -> LearnedRule | None:
    """Return the rule of a template; None where no pattern can be written of it."""
    if any(len(line) >= LONGEST - 1 for line in template.examples):
        return None
    pattern = pattern_of(template.pieces(), template.examples)
    if pattern is None:
        return None
    return _proposed(template, pattern, "templates", f"{template.count:,} lines of routine", task, at, used_ids)


def _written_rule(
    writer: RuleWriter,
    template: Template,
    task: str,
    at: datetime,
    used_ids: Collection[str],
    own: Sequence[str],
    other_lines: Sequence[str],
) -> LearnedRule | None:
    """Return the rule that most proposals of a model mean; None without a majority, or when it does not answer."""
    try:
        vote = voted(writer.propose, list(own[:SHOWN_TO_WRITER]) or list(template.examples), other_lines[:PROVEN])
    except NightshiftError as error:
        logger.warning("%s wrote no rule: %s", writer.name, error)
        return None
    if not vote.pattern:
        return None
    why = f"{template.count:,} lines of routine; {vote.votes} of {vote.asked} proposals mean this"
    return _proposed(template, vote.pattern, f"model:{writer.name}", why, task, at, used_ids)


def _proposed(
    template: Template, pattern: str, by: str, why: str, task: str, at: datetime, used_ids: Collection[str]
) -> LearnedRule:
    word = name_of(template.pieces())
    number = next(n for n in range(1, len(used_ids) + 2) if f"learned.{word}-{n}" not in used_ids)
    name, folds = f"learned.{word}-{number}", str(template)[:_SHOWN_LINES].strip()
    return LearnedRule(name, RuleKind.FILTER, pattern, template.examples, folds, RuleState.PROPOSED, by, why, at, task=task)


def _stretch(facts: Facts, healthy: bool) -> tuple[list[Line], list[str]]:
    """Return the uncovered lines that may be routine, and the texts that people must see.

    Of a failing log the lines before the first sign of failure may be routine; its tracebacks and its end must be seen.
    """
    if facts.scan is None:
        return [], []
    in_tracebacks = {number for episode in facts.episodes for number in episode.lines}
    signs = [hit.line for hit in facts.hits if isinstance(hit.entry, Signature) and hit.entry.role is not Role.BENIGN]
    end = facts.lines_total + 1
    if not healthy:
        end = min([facts.lines_total - END + 1, *signs, *in_tracebacks])
    lines = [line for first, last in facts.scan.uncovered.runs for line in facts.scan.lines.window(first, min(last, end - 1))]
    shown_lines = {*in_tracebacks, *(range(facts.lines_total - END + 1, facts.lines_total + 1) if not healthy else ())}
    return [line for line in lines if line.number not in in_tracebacks], [
        line.text for line in facts.lines if line.number in shown_lines
    ]


def routine_of(path: Path, knowledge: Knowledge, **more: Any) -> Routine:
    """Return what the log at a path teaches; its health is taken from the diagnosis. See `learn_routine`.

    Raises:
        InputError: The log cannot be read or is no log.
    """
    from assistant.diagnose.facts import gather
    from assistant.diagnose.verdict import diagnose

    case = Case.from_path(path)
    healthy = diagnose(case, knowledge).reason == "no_failure"
    return learn_routine(gather(case, knowledge), knowledge, healthy=healthy, **more)
