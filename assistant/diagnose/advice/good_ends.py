"""Say how a run in which nothing failed stands at the end of its log: that it is over, how far it is, what it has not shown yet.

Of a run whose own list has items that failed: which these are, what each met, and whether to run them again as they are.
"""

from __future__ import annotations

import re
from dataclasses import replace

from assistant.diagnose.advice.agreement import form_of
from assistant.diagnose.advice.stopped import clock
from assistant.diagnose.answer import NO_HELP, cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import run_bar, run_round
from assistant.diagnose.weighing.failed_items import SHOWN_OF_ITEM, FailedItems, ItemError, failed_items
from assistant.diagnose.weighing.outcome import How, outcome_of, tells_failure
from assistant.display import shorten
from assistant.logs.lines import Line
from assistant.records import Action, Diagnosis
from assistant.redact import redact

SHOWN_OF_END = 120
_WORDS = re.compile(r"[A-Za-z]{3,}\W{1,3}\w{2,}")
_NOT_PLAIN = re.compile(r"[|\r\x1b│█━─%]|it/s|={8}|-{8}|[Ww]arn|[Nn]ot [Ff]ound|HTTP/\d.{0,8} [45]\d\d|sha256")
"""Bars, rules, and words that are no proof that all is well."""
_OVER = re.compile(r"\b(?:finish|complet|done\b|ended|success|train_runtime|best |saved|shut)", re.IGNORECASE)


def end_account(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return how a run in which nothing failed stands at the end of its log; empty where the scheduler knows it better."""
    if not facts.lines or facts.case.job is not None or not diagnosis.root_cause:
        return ""
    outcome, cited = outcome_of(facts), diagnosis.root_cause[0]
    ended = outcome.how is How.FINISHED and (outcome.recorded or outcome.concluded)
    is_part = outcome.open_at is not None
    if not is_part and (ended or cited.rule.startswith("no_failure.") or cited.rule == How.FINISHED):
        end = f"{cited.file}:{cited.line}{_words_of_end(cited.text, facts)}"
        return f"{items_account(facts)} It is over and came to its end ({end}).".strip()
    bar, last = run_bar(facts), facts.lines[-1].number
    if outcome.counted and bar is None:
        account = f"Its last count came to its end (job.log:{outcome.lines[0].number})"
        return f"{account}, and nothing is wrong up to the last line, job.log:{last}."
    if bar is not None:
        remaining = f"the rest takes about {clock(bar.left_s)} at that rate (job.log:{bar.line})"
        reached = f": it stood at {bar.position} of {bar.total}, and {remaining}"
    elif (count := run_round(facts)) is not None:
        reached = f": it was at {count}"
    elif diagnosis.step:
        reached = f"; its last step is {diagnosis.step}"
    else:
        reached = f" ({words})" if (words := _plain_words(facts.lines[-1].text, facts)) else ""
    if is_part and outcome.open_at is not None:
        open_words = _open_words(outcome.open_at, facts)
        open_words = "" if f"job.log:{outcome.open_at.number})" in reached else open_words
        reached += f". What came to its end before it is a part; no line says that all is done{open_words}"
    return f"Nothing is wrong up to the last line, job.log:{last}{reached}."


def _open_words(line: Line, facts: Facts) -> str:
    """Return the line that shows that more was to be done, to be quoted; empty where it is the last one, which is quoted anyway."""
    if line.number == facts.lines[-1].number:
        return ""
    words = facts.streams.body(line.text.rsplit("\r", 1)[-1]).text.strip()
    return f" (job.log:{line.number}: {cut(words, SHOWN_OF_END).rstrip('.')})" if "|" not in words else f" (job.log:{line.number})"


def run_before(facts: Facts) -> str:
    """Return how the run before the last one of a log failed; empty where the last one shows work or an end, or none failed."""
    runs = facts.progress.runs
    only_began = facts.case.job is None and outcome_of(facts).how is How.NOTHING_WRONG
    if len(runs) < 2 or not only_began or facts.progress.last_line >= runs[-1].first:
        return ""
    before = [episode for episode in facts.episodes if runs[-2].first <= episode.first < runs[-1].first]
    if not before:
        return ""
    exception = cut(before[-1].raised[-1].text.strip(), SHOWN_OF_END).rstrip(".")
    return (
        f"The last of the {len(runs)} starts in this file, from line {runs[-1].first} on, shows no work yet: whether it gets"
        f" further is not known. The one before it failed: {exception} (job.log:{before[-1].raised[-1].line})."
    )


def _plain_words(line: str, facts: Facts) -> str:
    """Return the words of a line to be quoted; empty where it is a bar, a table, a frame of a box or code."""
    words = facts.streams.body(line).text.strip()
    plain = _WORDS.search(words) and not _NOT_PLAIN.search(words) and not line[:1].isspace()
    return cut(words, SHOWN_OF_END).rstrip(".") if plain and not tells_failure(words) else ""


def _words_of_end(line: str, facts: Facts) -> str:
    """Return the words of a line that say that a run is over, to be quoted; empty where the line is a bar or a table."""
    words = facts.streams.body(line.rsplit("\r", 1)[-1]).text.strip()
    return (
        f": {cut(words, SHOWN_OF_END).rstrip('.')}" if _OVER.search(words) and "|" not in words and "bytes ..." not in words else ""
    )


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
    error_words = _error_words(items, facts)
    return " ".join(filter(None, (items.sentence, error_words, _repeat_account(items) if error_words else UNREAD)))


def with_items_first(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis of what failed items met whose advice says first which items these are; any other as it is."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or cited.file != "job.log":
        return diagnosis
    items = failed_items(facts)
    if items is None or cited.line not in items.error_lines:
        return diagnosis
    body = diagnosis.advice.removesuffix(NO_HELP).strip()
    advice = " ".join(filter(None, (items.sentence, _error_words(items, facts), body, _repeat_account(items))))
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, advice=advice)


def _error_words(items: FailedItems, facts: Facts) -> str:
    """Return what each item met, those with the same error together."""
    by_error: dict[str, list[ItemError]] = {}
    for error in items.errors:
        by_error.setdefault(_words(error, facts), []).append(error)
    sentences = [
        f"{', '.join(shorten(redact(error.item), SHOWN_OF_ITEM) for error in same[:MOST_SHOWN])}: {words} (job.log:{same[0].line})"
        for words, same in list(by_error.items())[:MOST_SHOWN]
    ]
    return f"What they met: {'; '.join(sentences)}." if sentences else ""


def _words(error: ItemError, facts: Facts) -> str:
    exception = cut(redact(facts.streams.body(error.text).text.strip()), SHOWN_OF_ERROR).rstrip(".:")
    if error.report is None:
        return exception
    report = cut(redact(_LEVEL.sub("", facts.streams.body(error.report.text).text.strip())), SHOWN_OF_ERROR).rstrip(".:")
    return f"{exception}, before which it says: {report} (job.log:{error.report.number})"


def _repeat_account(items: FailedItems) -> str:
    """Return whether those items are run again as they are, which helps only where the moment was wrong."""
    forms = [form_of(error.text) for error in items.errors]
    if forms and all(form is not None and form.passes for form in forms):
        return RUN_ALONE
    return "Mend that, and run those items alone; the others need nothing."
