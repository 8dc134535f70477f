"""What is asked about a change that waits: who may answer it, since when, where it would run, what a yes or a no does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from assistant.agent.answer import command_text, count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence, Row
from assistant.agent.plain_english import plain_text
from assistant.agent.proposals import answered_by
from assistant.agent.tell_changes import OUT
from assistant.agent.waiting import RESTARTS, about_row
from assistant.nodeset import fold
from assistant.store.calls import SHORT_DIGEST

_WHO_ANSWERS = re.compile(
    r"\bwho (?:\w+ )?(?:can|may|could|must|should|has to|is (?:allowed|entitled|able) to|gets to|would have to|needs? to)"
    r"(?: \w+)? (?:say (?:yes|no|ok)|approve|allow|permit|confirm|grant|accept|deny|refuse|decide|agree"
    r"|sign (?:it |that )?off|answer|give)"
    r"|\bwho (?:decides|approves|signs (?:it |that )?off)\b|\bwhose (?:yes|approval|decision|call) (?:is|does)\b"
)
_WHERE_IT_RUNS = re.compile(
    r"\b(?:where|(?:on |to )?(?:which|what) (?:nodes?|machines?|hosts?|servers?))\b.*\b(?:would|will|does"
    r"|is going to|could|might)\b.*"
    r"\b(?:land|run|go|start|be placed|be put|end up|be scheduled|get)\b"
)
_SINCE = re.compile(
    r"^(?:since when|since what time|how long(?: is it| has it)?(?: already| now| so far| for)?|for how long(?: already| now)?|"
    r"when did (?:it|that|this) (?:start|begin|happen)|how long has (?:it|that|this) (?:been )?(?:waiting|going on|open|lasted)"
    r"|how long (?:is|does) (?:it|that) (?:waiting|wait|going on|been)|how long has it been|how old is"
    r" (?:it|that))(?: already| now| so far)?$"
)
_COUNSEL = re.compile(
    r"\bwhat (?:would|do) you (?:\w+ )?(?:do|recommend|suggest|advise|think|say)\b|\b(?:your|any)"
    r" (?:recommendation|advice|opinion)\b"
    r"|\bshould (?:i|we) (?:\w+ )?(?:approve|allow|accept|say yes|confirm)\b|\b(?:would you|do you)"
    r" (?:approve|recommend|advise|allow) (?:it|that|this)\b"
)
_NO = (
    r"(?:(?:say|said|answer|give|reply|click|vote)(?:s|ed)? (?:it )?(?:with )?(?:a )?no\b|den(?:y|ied|ies)"
    r"|refus\w+|reject\w*|declin\w+|disapprov\w+|turn (?:it|that) down"
    r"|(?:do(?:es)?|did|will|would|have|has|am)? ?(?:not|never|n't) (?:\w+ )?(?:approv\w*|allow\w*"
    r"|confirm\w*|agree\w*|accept\w*|permit\w*|say (?:yes|ok)|answer\w*|grant\w*|consent\w*|sign\w*)"
    r"|(?:nobody|no one) (?:\w+ )?(?:approv\w*|allow\w*|says? (?:yes|ok)|answer\w*|confirm\w*|agree\w*|reacts?|responds?)"
    r"|(?:ignore|leave) (?:it|that|this|the (?:approval|request))(?! alone)|let (?:it|that) (?:expire|run"
    r" out|lapse)|without (?:a |my |the )?(?:yes|approval))"
)
_YES = r"(?:say(?:s)? (?:yes|ok)|approv\w*|allow\w*|confirm\w*|accept\w*|agree\w*|grant\w*)"
_IF = r"\b(?:if|when|in case|suppose|assuming|should)\b"
_ASKS_IF = re.compile(
    r"\bwhat\b|\bhow\b|\bthen\?|\bhappen|\bwould\b|\bwill\b|\bconsequence|^\W*(?:and |so |but )*(?:if|suppose|assuming)\b"
)
_NO_IF = re.compile(rf"{_IF}.*\b{_NO}")
_YES_IF = re.compile(rf"{_IF}.*\b{_YES}")


def read_approval(sentence: OutrightSentence) -> OutrightReading | None:
    """Read a question about a change that waits."""
    if not sentence.inventory.approvals:
        return None
    numbers = sentence.names.approvals
    # `reject approval 1` is a name for the readers of names: its verb stands in the words alone
    plain = plain_text(sentence.words)
    if sentence.says(_ASKS_IF) and (_NO_IF.search(plain) or _YES_IF.search(plain)):
        is_no = _NO_IF.search(plain) is not None
        return _reading(partial(answered_told, numbers=numbers, job=_named_job(sentence), says_yes=not is_no))
    if sentence.names.nodes or (sentence.names_nothing is False and not sentence.names.jobs):
        return None
    if sentence.says(_WHO_ANSWERS) and not sentence.says(r"\bwho (?:has |had |did )?(?:approved|allowed|confirmed)\b"):
        return _reading(partial(who_told, numbers=numbers))
    of_restart = sentence.of_approval or sentence.names.jobs or (sentence.dialogue.jobs[:1] and _awaited(sentence))
    if sentence.says(_WHERE_IT_RUNS) and of_restart and not sentence.names.jobs[1:]:
        return _reading(partial(landing_told, numbers=numbers, job=sentence.job))
    if not sentence.of_approval and not numbers:
        return None
    if _SINCE.match(sentence.bare):
        return _reading(partial(since_told, numbers=numbers))
    if sentence.says(_COUNSEL) and not sentence.names.jobs:
        return _reading(partial(counsel_told, numbers=numbers))
    return None


def read_should_approve(sentence: OutrightSentence) -> OutrightReading | None:
    """Read `should I approve it` where nothing was spoken of."""
    about = bool(sentence.inventory.approvals) and (sentence.names_nothing or _awaited(sentence))
    if about and sentence.says(r"\bshould (?:i|we) (?:\w+ )?(?:approve|allow|accept|confirm)\b"):
        return _reading(partial(counsel_told, numbers=sentence.names.approvals))
    return None


def _reading(tell: partial[Iterator[str]]) -> OutrightReading:
    return OutrightReading(tell, "approvals", topic="approval")


def _named_job(sentence: OutrightSentence) -> str:
    return sentence.names.jobs[0] if sentence.names.jobs else ""


def _awaited(sentence: OutrightSentence) -> bool:
    return sentence.job in sentence.inventory.awaited


def _waiting(turn: QuestionTurn, numbers: tuple[int, ...], job: str = "") -> tuple[list[Row], str]:
    source = turn.look("list_approvals")
    rows = [row for row in source.value or () if not numbers or row["approval"] in numbers]
    about_job = [row for row in rows if about_row(turn, row).get("job") == job] if job else []
    if len(rows) == 1 or about_job:
        row = (about_job or rows)[0]
        turn.about = about_row(turn, row)
    return about_job or rows, f"[{source.number}]"


def _row_lines(rows: list[Row], mark: str) -> Iterator[str]:
    for row in rows[:4]:
        digest = str(row["digest"])[:SHORT_DIGEST]
        yield f"  {row['approval']}: {command_text(row['change'])} {mark}\n     {answered_by(row['approval'], digest)}"


def who_told(turn: QuestionTurn, numbers: tuple[int, ...]) -> Iterator[str]:
    """Tell who may answer what waits: a person, whom no record names."""
    rows, mark = _waiting(turn, numbers)
    if not rows:
        return
    names = ", ".join(f"approval {row['approval']}" for row in rows[:4])
    yield (
        f"A person who operates this site, at the card of the chat or with the command; no name is recorded for it, and no words"
        f" here count as the yes. It is about {names} {mark}."
    )
    yield from _row_lines(rows, mark)


def since_told(turn: QuestionTurn, numbers: tuple[int, ...]) -> Iterator[str]:
    """Tell since when a change waits, and since when the incident is open that it belongs to."""
    rows, mark = _waiting(turn, numbers)
    for row in rows[:4]:
        opened = ""
        if row["incident"] is not None:
            incident = turn.look("show_incident", incident=row["incident"])
            if not incident.error:
                opened = (
                    f"; its incident {row['incident']} is open since {time_text(incident.value['opened'], turn.now)} "
                    f"[{incident.number}]"
                )
        yield f"Approval {row['approval']} waits since {time_text(row['asked'], turn.now)} {mark}{opened}."
    yield from _row_lines(rows, mark)


def _excluded(change: str) -> str:
    match = re.search(r"--exclude=(\S+)", change)
    return match[1] if match is not None else ""


def landing_told(turn: QuestionTurn, numbers: tuple[int, ...], job: str = "") -> Iterator[str]:
    """Tell where a restart that waits would run: the scheduler picks, and which nodes it may not take."""
    rows, mark = _waiting(turn, numbers, job)
    row = next((row for row in rows if row["tool"] in RESTARTS), None)
    if row is None:
        return
    nodes = turn.look("node_states")
    status = turn.look("show_job", job=about_row(turn, row).get("job", ""))
    needs = (status.value or {}).get("asked", {}).get("nodes") or len((status.value or {}).get("nodes", ()))
    idle = [node["node"] for node in nodes.value or () if node["state"] == "idle" and not node["jobs"]]
    out = [node["node"] for node in nodes.value or () if node["state"] in OUT]
    excluded = _excluded(row["change"])
    exclusion = f", never {excluded} (--exclude={excluded})" if excluded else ""
    count = f"{count_text(needs, 'node')} " if needs else "its nodes "
    yield f"Which nodes is not known before it starts: the scheduler picks {count}for approval {row['approval']}{exclusion} {mark}."
    if not nodes.error:
        yield (
            f"Idle now: {count_text(len(idle), 'node')}, {fold(idle)}; out of service: "
            f"{fold(out) if out else 'none'} [{nodes.number}]."
        )
    yield from _row_lines([row], mark)


def counsel_told(turn: QuestionTurn, numbers: tuple[int, ...]) -> Iterator[str]:
    """Tell what speaks for and against a change that waits; the decision stays with a person."""
    rows, mark = _waiting(turn, numbers)
    for row in rows[:2]:
        job = about_row(turn, row).get("job", "")
        if row["tool"] not in RESTARTS or not job:
            yield (
                f"On approval {row['approval']} {mark}: {one_line(row['change'], 160)} ({one_line(row['why'], 100)}); "
                "whether to allow it is for a person to decide."
            )
            continue
        yield _restart_counsel(turn, row, job, mark)
    yield from _row_lines(rows[:2], mark)


def _restart_counsel(turn: QuestionTurn, row: Row, job: str, mark: str) -> str:
    planned, choice, nodes = turn.look("plan_recovery", job=job), turn.look("choose_checkpoint", job=job), turn.look("node_states")
    grounds, against = [], []
    blamed = (planned.value or {}).get("nodes_to_blame", ())
    excluded = _excluded(row["change"])
    if (planned.value or {}).get("action") == "fix_and_resubmit":
        against.append(f"job {job} would fail again until its owner changes something [{planned.number}]")
    for node in blamed:
        if node in excluded:
            grounds.append(f"{node}, which is to blame, is left out")
        else:
            against.append(f"{node}, which is to blame, is not left out [{planned.number}]")
    step = (choice.value or {}).get("step")
    if step is not None:
        unhealthy = (choice.value or {}).get("refused") or ()
        newer = ", a newer one is not whole" if unhealthy else ""
        grounds.append(f"step {step} is the newest healthy checkpoint{newer} [{choice.number}]")
    idle = sum(node["state"] == "idle" for node in nodes.value or ())
    if idle:
        grounds.append(f"{count_text(idle, 'node')} are idle [{nodes.number}]")
    verdict = f"this speaks against it: {'; '.join(against)}" if against else "nothing recorded speaks against a yes"
    return (
        f"On approval {row['approval']}, the restart of job {job}: {verdict} {mark}"
        f"{': ' if grounds else ''}{'; '.join(grounds)}. The decision is a person's."
    )


def answered_told(turn: QuestionTurn, numbers: tuple[int, ...], job: str = "", says_yes: bool = False) -> Iterator[str]:
    """Tell what follows from a yes or a no; neither is given by the question."""
    rows, mark = _waiting(turn, numbers, job)
    if not rows:
        return
    row = rows[0]
    about, change = about_row(turn, row), one_line(row["change"], 160)
    number, of = row["approval"], about.get("job", "") or fold(about.get("nodes", ()) or ())
    if says_yes:
        yield (
            f"Then Nightshift does what approval {number} says {mark}: {change}. This question is no yes: nothing is allowed by it."
        )
    elif row["tool"] in RESTARTS:
        status = turn.look("show_job", job=of)
        state = f" and stays {status.value['state']} [{status.number}]" if not status.error else ""
        yield f"Then job {of} is not submitted again{state}; nothing else changes: approval {number} is only this {mark}: {change}."
        yield from _left_standing(turn, of)
    else:
        yield f"Then it is not done, and {of or 'all'} stays as it is: approval {number} {mark}: {change}."
    if not says_yes:
        yield (
            f"Without an answer it runs out {time_text(row['expires'], turn.now)}. This question is no answer: "
            "the approval goes on waiting."
        )
    yield from _row_lines([row], mark)
    if len(rows) > 1:
        yield f"Besides waits: {', '.join(str(other_row['approval']) for other_row in rows[1:4])} {mark}."


def _left_standing(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell what a no leaves as it is: nodes that are out for the job, its newest healthy checkpoint."""
    incidents, nodes = turn.look("list_incidents", limit=400), turn.look("node_states")
    blamed = {node for row in incidents.value or () if row["job"] == job for node in row["nodes_to_blame"]}
    out = [node["node"] for node in nodes.value or () if node["node"] in blamed and node["state"] in OUT]
    choice = turn.look("choose_checkpoint", job=job)
    step = (choice.value or {}).get("step")
    parts = [f"{fold(out)} stays out of service, which is a change of its own [{nodes.number}]"] if out else []
    parts += [f"its checkpoint of step {step} stays [{choice.number}]"] if step is not None else []
    if parts:
        yield f"{'; '.join(parts)}."
