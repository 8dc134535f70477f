"""What is asked of Nightshift itself: what it did and what not, who is on call, why somebody asked for something."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

from assistant.agent.answer import count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence, blaming_incidents
from assistant.agent.outright.windows import TimeWindow, asked_window

DAY_H = 24.0
_ACTS = re.compile(r"\bwhat\b.*\byou (?:\w+ )?(?:do|did|done|change[d]?)\b(?!.*\b(?:to|with|about) (?:\{|it\b|that\b))")
_BOTH = re.compile(
    r"\b(?:what|and) (?:did )?not\b|\bundone\b|\bnot (?:do|done)\b|\bleft\b|\bopen\b|\bby yourself\b|\bon"
    r" your own\b|\balone\b|\bwithout (?:me|us|asking)\b"
)
_WHY_I = re.compile(r"\bwhy (?:did|do|have|would) (?:i|we) (?:\w+ )?(?:ask|want|say|order|need|do|request|propose)\w*\b")
_ON_CALL = re.compile(
    r"\bon[ -]?call\b|\b(?:pager|standby|bereitschaft) duty\b|\bwho (?:has|is) (?:the pager|on duty|on shift|on standby)\b"
)


def read_acts(sentence: OutrightSentence) -> OutrightReading | None:
    """Read a question about what Nightshift did, or what no record of it holds."""
    if sentence.says(_ON_CALL) and not sentence.says(r"\bonce\b"):
        return OutrightReading(on_call_told, "overview")
    if sentence.says(_WHY_I) and not sentence.names.jobs:
        return OutrightReading(
            partial(why_asked_told, node=sentence.node),
            "node_state" if sentence.node else "help",
            nodes=(sentence.node,) if sentence.node else (),
        )
    if sentence.says(_ACTS) and sentence.says(_BOTH) and sentence.names_nothing and not sentence.inventory.unknown:
        window = asked_window(sentence.words, sentence.now)
        return OutrightReading(partial(acts_told, window=window), "changes")
    return None


def acts_told(turn: QuestionTurn, window: TimeWindow | None) -> Iterator[str]:
    """Tell which changes were made by whom, and what was not done: what waits, what was handed to a person."""
    start = window.start if window is not None else turn.now - timedelta(hours=DAY_H)
    changes = turn.look("recent_changes", hours=max(1.0, (turn.now - start) / timedelta(hours=1)))
    waiting, escalated = turn.look("list_approvals"), turn.look("list_incidents", unacknowledged=True, limit=50)
    if changes.error or waiting.error or escalated.error:
        return
    period = window.text if window is not None else "in the last 24 hours"
    finished = [
        row
        for row in changes.value
        if row["status"] in ("done", "undone") and (window is None or window.holds(datetime.fromisoformat(row["at"])))
    ]
    parts = [
        f"{one_line(row['change'], 100)} at {time_text(row['at'], turn.now)} (call {row['call']}, by {row['by']})"
        for row in finished[:4]
    ]
    not_done = [f"approval {row['approval']} waits for a yes ({one_line(row['change'], 100)})" for row in waiting.value[:4]]
    not_done += [
        f"incident {row['incident']} (job {row['job'] or '-'}: {row['job'] and one_line(row['note'], 100)}) is left to a person"
        for row in escalated.value[:4]
    ]
    yield (
        f"{count_text(len(finished), 'change')} made {period} [{changes.number}]{': ' if parts else ''}{'; '.join(parts)}."
        f" Not done: {'; '.join(not_done) or 'nothing waits and nothing was handed over'} [{waiting.number}][{escalated.number}]."
    )
    yield from (f"  to take it back: {row['undo']}" for row in finished[:4] if row["undo"])


def why_asked_told(turn: QuestionTurn, node: str) -> Iterator[str]:
    """Say that nobody's motive is recorded, and what is recorded of the thing."""
    if not node:
        yield "Not known: why somebody asks is not recorded."
        return
    rows, mark = blaming_incidents(turn, node)
    about = f"{count_text(len(rows), 'incident')} are about it" if rows else "no incident is about it"
    yield f"Why you asked is not known here. Of {node}: {about} {mark}."
    waiting = turn.look("list_approvals")
    for row in waiting.value or ():
        if row["approval"] in turn.proposed:
            yield (
                f"  approval {row['approval']} waits still: {one_line(row['change'], 120)}; to drop it: nightshift "
                f"deny {row['approval']} [{waiting.number}]"
            )


def on_call_told(turn: QuestionTurn) -> Iterator[str]:
    """Say that no roster is recorded, and what needs a person."""
    yield "Not known: no record here says who is on call."
    waiting, escalated = turn.look("list_approvals"), turn.look("list_incidents", unacknowledged=True, limit=20)
    for row in (waiting.value or ())[:3]:
        yield f"  approval {row['approval']} waits for an operator: {one_line(row['change'], 120)} [{waiting.number}]"
    for row in (escalated.value or ())[:3]:
        yield f"  incident {row['incident']} needs a person: {one_line(row['note'], 120)} [{escalated.number}]"
