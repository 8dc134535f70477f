"""Retries that failed: a program asks an address again and again and gives up, or a log ends in attempts that go on failing.

The exception with which it gives up often names no more than that ("no answer after 5 attempts"), or nothing at all; the lines of
the attempts say whom it asked and what came back. Any one of them alone is survived, as each retry before the last was.
That trying in vain is the last thing that a program does is no good end, though it calls each such line mild.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.tracebacks import EpisodeKind
from assistant.diagnose.weighing.findings import Finding
from assistant.logs.lines import Line

__all__ = ["USED_UP", "failing_attempts", "is_attempt", "of_retries", "prefer_retries", "tried_again"]

USED_UP = "retries used up"
"""Rule of such a finding."""
FEWEST = 2
"""Attempts on one address: one alone is an error like any other."""
MOST_LINES = 400
"""Lines behind the last step that are looked at, from the end."""
MOST_BETWEEN = 8
"""Lines with words at most between the last attempt and the exception, or the end of the log."""
WEIGHT = 0.8
GENERIC = 0.66
"""Weight of an exception at most of which no more is known than its class."""
ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+]{1,9}://(?P<url>[\w.-]{1,200}(?::\d{2,5})?)|(?<![\w./])(?P<host>[\w-][\w.-]{0,100}:\d{2,5})(?![\d:])"
)
_NO_ANSWER = re.compile(
    r"[Cc]onnection (?:was )?(?:refused|reset|aborted|closed)|ECONNREFUSED|ETIMEDOUT|[Tt]imed? ?out|[Nn]o route to host"
    r"|(?:host|network)\b.{0,12}unreachable|[Nn]ame or service not known|name resolution|[Mm]ax retries exceeded"
    r"|[Rr]emote end closed|[Ss]ervice [Uu]navailable|[Bb]ad [Gg]ateway|[Gg]ateway [Tt]ime-?out|\b50[234]\b"
    r"|(?:[Ff]ailed|[Uu]nable|[Cc]annot|[Cc]ould not|[Cc]ouldn't) (?:to )?(?:connect|reach)",
)
_OF_PEERS = re.compile(r"NCCL|gloo|c10d|TCPStore|[Rr]endezvous|rdzv|MASTER_|ProcessGroup|wandb|mlflow|comet|neptune|telemetry")
"""Ranks that lose one another are symptoms; trackers retry beside a training that goes on."""
_ASKS = re.compile(
    r"request|retr(?:y|ie)|attempt|connect|reach|server|\bapi\b|remote|client|http|url|fetch|download|respon|answer|\brpc|servic"
    r"|endpoint|\bcall\b|time ?out|unavailable|give.{0,4}up|giving up|gave up",
    re.IGNORECASE,
)


_TRIED_AGAIN = re.compile(r"\b(?:[Ww]ill retry in \d|[Rr]etrying (?:in|after) \d)")
"""How a tool says below its error that it tries once more, as curl does."""


def tried_again(line: int, facts: Facts) -> bool:
    """Tell whether the line below an error says that the tool tries it once more."""
    return any(_TRIED_AGAIN.search(row.text[:MOST_LINES]) for row in facts.between(line + 1, line + 1))


def of_retries(facts: Facts) -> Iterator[Finding]:
    """Yield the last attempt on an address that a program asked again and again behind its last step, to the end."""
    last = facts.lines[-1].number if facts.lines else 0
    first = max(facts.progress.last_line + 1, facts.progress.leg, last - MOST_LINES)
    attempts: dict[tuple[str, str], list[Line]] = {}
    for line in facts.between(first, last):
        if _NO_ANSWER.search(line.text) is None or _OF_PEERS.search(line.text) is not None or line.text[:1] in " \t":
            continue
        body = facts.streams.body(line.text)
        if match := ADDRESS.search(body.text):
            attempts.setdefault((body.stream, match["url"] or match["host"]), []).append(line)
    tracebacks = [range(episode.first, episode.last + 1) for episode in facts.episodes]
    for (stream, address), lines in attempts.items():
        plain = [line for line in lines if not any(line.number in place for place in tracebacks)]
        if len(plain) < FEWEST or not _leads_to_end(plain[-1].number, stream, facts):
            continue
        body = facts.streams.body(plain[-1].text)
        more = tuple((line.number, line.text) for line in plain[-4:-1])
        yield Finding(
            "connection_error",
            Role.ROOT,
            WEIGHT,
            "job.log",
            plain[-1].number,
            plain[-1].text,
            f"{USED_UP}: {address}",
            rank=body.rank,
            task=body.task,
            host=body.host,
            stream=stream,
            more=more,
        )


def prefer_retries(findings: Sequence[Finding], facts: Facts) -> None:
    """Let the exception with which a program gave up count less than the attempts that it gave up."""
    for retries in (finding for finding in findings if finding.rule.startswith(USED_UP)):
        for finding in findings:
            if finding is not retries and finding.episode is not None and _gave_up(finding, retries, facts):
                finding.factor, finding.note = finding.factor * 0.4, f"it gave up what it asked for until line {retries.line}"


def _leads_to_end(line: int, stream: str, facts: Facts) -> bool:
    """Tell whether an exception that is about asking, or the end of the log, stands right behind a line."""
    episode = next((entry for entry in facts.episodes if entry.stream == stream and entry.first > line), None)
    if episode is None:
        return _words_between(line, facts.lines_total + 1, facts) <= MOST_BETWEEN and bool(
            facts.exits or facts.tasks or _ended_badly(facts)
        )
    if episode.kind is not EpisodeKind.MAIN or _words_between(line, episode.first, facts) > MOST_BETWEEN:
        return False
    frames = chain.from_iterable(raised.frames for raised in episode.raised)
    words = [*(raised.text for raised in episode.raised), *(f"{frame.function} {frame.file}" for frame in frames)]
    return any(_ASKS.search(text) for text in words)


def _ended_badly(facts: Facts) -> bool:
    return facts.case.job is not None and facts.case.job.ended_badly


def _gave_up(finding: Finding, retries: Finding, facts: Facts) -> bool:
    """Tell whether an exception says no more than that something failed, right behind the attempts."""
    episode = finding.episode
    return (
        episode is not None
        and episode.stream == retries.stream
        and finding.reason != retries.reason
        and finding.weight <= GENERIC
        and episode.first - retries.line > 0
        and _words_between(retries.line, episode.first, facts) <= MOST_BETWEEN
    )


def _words_between(line: int, later: int, facts: Facts) -> int:
    """Return how many lines with words stand between two lines, one more than `MOST_BETWEEN` at most."""
    between = facts.between(line + 1, min(later - 1, line + 4 * MOST_BETWEEN))
    return sum(bool(entry.text.strip()) for entry in between)


LAST, FEWEST_FAILING, SHARE = 12, 3, 0.6
"""Lines at the end that are looked at, attempts among them, and their share."""
MOST_OF_LINE = 500
_FAILS = r"fail\w*|errors?|time[sd]?[- ]?out\w*|\w*Timeout\w*|\w*Error|refused|unreachable|unavailable|no route|reset by peer|5\d\d"
_TRIES = r"retry(?:ing)?|retries|(?:re)?try(?:ing)? again|attempt(?:s|ing)?|tries|reconnect(?:ing)?"
_TRIES += r"|giving up|gave up|back(?:ing)?[- ]?off"
_ATTEMPT = re.compile(rf"\b(?:{_TRIES})\b.{{0,160}}\b(?:{_FAILS})\b|\b(?:{_FAILS})\b.{{0,240}}\b(?:{_TRIES})\b", re.IGNORECASE)
_SUCCEEDED = re.compile(
    r"\b(?:succe\w+|connected|recovered|resumed|restored|done|finished|complete[d]?|established|ok)\b", re.IGNORECASE
)
_REPORTS = re.compile(r"\b(?:wandb|mlflow|neptune|comet|clearml|telemetry|analytics|sentry|tensorboard)\b", re.IGNORECASE)
"""Services to which a program only reports, and without which its work goes on."""


def failing_attempts(lines: Sequence[Line], last_step: int) -> tuple[Line, ...]:
    """Return the first and the last of the attempts that a log ends in; empty where it ends in anything else.

    Args:
        lines: The end of the log, without blank lines.
        last_step: Line of the last sign of progress; 0 without any.
    """
    end = [line for line in lines[-LAST:] if line.number > last_step]
    attempts = [line for line in end if is_attempt(line.text)]
    if len(attempts) < FEWEST_FAILING or len(attempts) < SHARE * len(end):
        return ()
    lines_after = [line for line in end if line.number > attempts[-1].number]
    if any(_SUCCEEDED.search(line.text[:MOST_OF_LINE]) for line in lines_after):
        return ()
    return attempts[0], attempts[-1]


def is_attempt(text: str) -> bool:
    """Tell whether a line says that an attempt failed and is, or was, made again."""
    head = text[:MOST_OF_LINE]
    return _ATTEMPT.search(head) is not None and _REPORTS.search(head) is None and _SUCCEEDED.search(head) is None
