"""Let action and advice say the same about another start, and nothing be asked for that the log shows as set already.

Whether a start helps is decided here alone, in this order: advice that fits the line says so itself (`wall`, `quiet`), the words of
the failure say so (knowledge/recurrence.toml), else the action of the reason stands. Where a sentence that was made from the case
says that the same start meets the same, the action goes with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from assistant.content.reading import build, knowledge_file, read_toml, wrong
from assistant.diagnose.answer import DEEDS, NO_HELP
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.errors import ContentError
from assistant.linear_patterns import holds, linear_pattern
from assistant.records import Action, Diagnosis

FILE = "recurrence.toml"
MESSAGE_LINES = 8
"""Of a message of several lines, those whose words are asked."""
OF_SERVICES = frozenset(
    "connection_error network_error s3_storage_error os_error runtime_error called_process_error file_not_found_error "
    "dataset_loading_error model_loading_error".split()
)
"""Reasons behind which may stand another machine's moment as well as an own mistake."""
STARTS = (Action.RESTART_SAME_NODES, Action.WAIT_AND_RETRY)
_SENTENCE = re.compile(r"(?<=[a-z0-9)`'\"][.!?]) (?=[A-Z`])")
_MEETS_AGAIN = re.compile(
    r"Under the same limit.{0,80} it ends at the same place|from the start it wants |restart is refused the same way"
    r"|every start comes to (?:it|the same)|(?:, so|[.:]) ?[Ww]aiting does not help|is the same at every start"
)
"""Sentences of our own which say, without a condition, that the same start meets the same."""
_STARTS_AGAIN = re.compile(r"(?:Start it again|Restart|Wait until what it needs is there)\b")
_ASKS_TO_RETRY = re.compile(
    r"(?:Do what the message asks|The message itself asks.{0,80}|The log itself says.{0,80}): (?:please )?(?:re)?try"
)
_VARIABLE = re.compile(r"(?<![\w$/.-])[A-Z][A-Z0-9]{1,20}(?:_[A-Z0-9]{1,20}){1,6}(?![\w/])")
_ASSIGNED = re.compile(
    r"^\W{0,3}(?:export |declare -x |setenv |os\.environ\[)?['\"]?(?P<name>[A-Z][A-Z0-9_]{3,80})['\"]?\]? ?(?:[=:]| (?=\S+$)) ?"
    r"['\"]?(?P<value>[^\s'\",;]{1,120})"
)
_BY_NCCL = re.compile(r"(?P<name>[A-Z][A-Z0-9_]{3,80}) set (?:by environment )?to (?P<value>[^\s.,;]{1,120})")
"""How NCCL and RCCL print a variable that they read."""
MOST_OF_LINE = 400


@dataclass(frozen=True)
class RecurrenceForm:
    """Words of a failure that say whether another start meets the same."""

    id: str
    pattern: str
    """RE2, for one line of a message."""
    passes: bool
    """Whether only the moment was wrong."""
    examples: tuple[str, ...]
    pause: bool = False
    """Whether a start at once would meet it again."""


@dataclass(frozen=True)
class _File:
    form: tuple[RecurrenceForm, ...]


@cache
def recurrence_forms() -> tuple[RecurrenceForm, ...]:
    """Return the forms in the order in which they are asked.

    Raises:
        ContentError: The file is malformed; the message names file, line and key.
    """
    path = knowledge_file(FILE)
    forms = build(_File, read_toml(path), path).form
    for form in forms:
        try:
            linear_pattern(form.pattern)
        except ContentError as error:
            raise wrong(path, "pattern", f"{form.id}: {error}") from error
    return forms


def form_of(text: str) -> RecurrenceForm | None:
    """Return the form whose words a line has; None where it does not say whether another start meets the same."""
    return next((form for form in recurrence_forms() if holds(linear_pattern(form.pattern), text)), None)


def action_of(diagnosis: Diagnosis, facts: Facts, *, wall: bool, quiet: bool) -> Action:
    """Return the action of a diagnosis: none that meets a wall again, and no mending where only the moment was wrong.

    Args:
        diagnosis: With the action of its reason or signature.
        facts: Of the case.
        wall: The advice says that a start meets the same again.
        quiet: The advice says that nothing has to be changed.
    """
    action = diagnosis.action
    if wall:
        return Action.FIX_AND_RESUBMIT if action in (STARTS if diagnosis.nodes else (*DEEDS,)) else action
    startable = (*STARTS, Action.FIX_AND_RESUBMIT) if not diagnosis.nodes else (Action.FIX_AND_RESUBMIT,)
    if quiet:
        return Action.WAIT_AND_RETRY if action in startable else action
    if diagnosis.reason not in OF_SERVICES or diagnosis.nodes or not diagnosis.root_cause:
        return action
    lines = message_of(diagnosis.root_cause[0], facts)[:MESSAGE_LINES]
    form = next((form for line in lines if (form := form_of(line)) is not None), None)
    if form is None or action not in startable:
        return action
    if not form.passes:
        return Action.FIX_AND_RESUBMIT
    return Action.WAIT_AND_RETRY if form.pause or action is Action.FIX_AND_RESUBMIT else action


def agreeing(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return the diagnosis with an action that its advice does not contradict, and what of its settings the log shows as set."""
    sentences = _SENTENCE.split(diagnosis.advice)
    if diagnosis.action in STARTS and not diagnosis.nodes and any(_MEETS_AGAIN.search(sentence) for sentence in sentences):
        changes = [sentence for sentence in sentences if not _STARTS_AGAIN.match(sentence)]
        diagnosis = replace(diagnosis, action=Action.FIX_AND_RESUBMIT, advice=" ".join(changes))
    elif diagnosis.action is Action.FIX_AND_RESUBMIT and any(_ASKS_TO_RETRY.match(sentence) for sentence in sentences):
        changes = [sentence for sentence in sentences if not _ASKS_TO_RETRY.match(sentence)]
        diagnosis = replace(diagnosis, advice=" ".join(changes))
    settings = " ".join(_set_already(diagnosis, facts))
    if not settings:
        return diagnosis
    body = diagnosis.advice.removesuffix(NO_HELP).strip()
    ending = f" {NO_HELP}" if diagnosis.advice.endswith(NO_HELP) else ""
    return replace(diagnosis, advice=f"{body} {settings}{ending}")


def _set_already(diagnosis: Diagnosis, facts: Facts) -> Iterator[str]:
    """Yield a sentence for each environment variable that the advice asks for and the log shows as set before the failure."""
    names = set(_VARIABLE.findall(diagnosis.advice))
    if not names or diagnosis.action is not Action.FIX_AND_RESUBMIT or not diagnosis.root_cause:
        return
    values: dict[str, tuple[str, int]] = {}
    for line in facts.lines:
        if line.number >= diagnosis.root_cause[0].line and diagnosis.root_cause[0].file == "job.log":
            break
        text = line.text[:MOST_OF_LINE]
        if "_" not in text:
            continue
        match = _BY_NCCL.search(text) or _ASSIGNED.match(facts.streams.body(text).text)
        if match is not None and match["name"] in names:
            values[match["name"]] = (match["value"].rstrip(")]}"), line.number)
    for name, (value, number) in values.items():
        if f"job.log:{number}" not in diagnosis.advice:
            yield (
                f"{name} is set already, to {value} (job.log:{number}): that value did not do, so choose another one, or mend what "
                "it names."
            )
