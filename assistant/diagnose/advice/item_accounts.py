"""Say of a run whose own list has items that failed which these are, what each met, and whether to run them again as they are."""

from __future__ import annotations

import re
from dataclasses import replace

from assistant.diagnose.advice.agreement import form_of
from assistant.diagnose.answer import NO_HELP, cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.failed_items import SHOWN_OF_ITEM, FailedItems, ItemError, failed_items
from assistant.display import shorten
from assistant.records import Action, Diagnosis
from assistant.redact import redact

SHOWN_OF_ERROR, MOST_SHOWN = 160, 4
_LEVEL = re.compile(r"^.{0,80}?\|\s{0,8}(?:ERROR|CRITICAL)\s{0,8}\|\s{0,8}(?:[\w.:<>]{1,120} - )?")
"""Time, level and place that a logger of Python puts before its words, between bars."""
UNREAD = "Of the run itself nothing has to be mended: read what those printed, mend that, and run them alone."
RUN_ALONE = "That passes by itself: run those items again alone."


def items_account(facts: Facts) -> str:
    """Return which items failed, and what to do about them, where the reason of the run says nothing of it; empty without any."""
    items = failed_items(facts)
    if items is None:
        return ""
    met = _met(items, facts)
    return " ".join(filter(None, (items.sentence, met, _repeat_account(items) if met else UNREAD)))


def with_items_first(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis of what failed items met whose advice says first which items these are; any other as it is."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or cited.file != "job.log":
        return diagnosis
    items = failed_items(facts)
    if items is None or cited.line not in items.error_lines:
        return diagnosis
    body = diagnosis.advice.removesuffix(NO_HELP).strip()
    advice = " ".join(filter(None, (items.sentence, _met(items, facts), body, _repeat_account(items))))
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, advice=advice)


def _met(items: FailedItems, facts: Facts) -> str:
    """Return what each item met, those with the same error together."""
    by_error: dict[str, list[ItemError]] = {}
    for error in items.errors:
        by_error.setdefault(_words(error, facts), []).append(error)
    sentences = [
        f"{', '.join(shorten(redact(error.item), SHOWN_OF_ITEM) for error in each[:MOST_SHOWN])}: {words} (job.log:{each[0].line})"
        for words, each in list(by_error.items())[:MOST_SHOWN]
    ]
    return f"What they met: {'; '.join(sentences)}." if sentences else ""


def _words(error: ItemError, facts: Facts) -> str:
    raised = cut(redact(facts.streams.body(error.text).text.strip()), SHOWN_OF_ERROR).rstrip(".:")
    if error.report is None:
        return raised
    report = cut(redact(_LEVEL.sub("", facts.streams.body(error.report.text).text.strip())), SHOWN_OF_ERROR).rstrip(".:")
    return f"{raised}, before which it says: {report} (job.log:{error.report.number})"


def _repeat_account(items: FailedItems) -> str:
    """Return whether those items are run again as they are, which helps only where the moment was wrong."""
    forms = [form_of(error.text) for error in items.errors]
    if forms and all(form is not None and form.passes for form in forms):
        return RUN_ALONE
    return "Mend that, and run those items alone; the others need nothing."
