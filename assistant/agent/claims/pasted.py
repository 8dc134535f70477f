"""Pasted text: a line of a log, a command, the preview of a change. What it is, where it stands and what it means here.

A number in it, such as a process id or an exit code, names no job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from assistant.agent.answer import one_line
from assistant.agent.claims.checks import incident_of, job_fact, node_fact, reason_text, waiting_rows
from assistant.agent.claims.lexicon import CARRIED_OUT, SHOULD, TRUE, change_in
from assistant.agent.claims.mentions import mentioned
from assistant.agent.claims.question import RecordQuestion, begins_as_question
from assistant.agent.claims.statements import _FORMS as FORMS
from assistant.agent.claims.statements import made_or_not, to_blame
from assistant.agent.words import NameInventory
from assistant.nodeset import fold

MOST_LOGS, MOST_WORDS = 6, 10
FEWEST_WORDS = 2
_QUOTED = re.compile(
    r"\"(?P<double>[^\"]{4,300})\"|`(?P<back>[^`]{4,300})`|\u201c(?P<curly>[^\u201d]{4,300})\u201d|\u201e(?P<low>[^\u201c\u201d\"]{4,300})[\u201c\u201d\"]"
    r"|「(?P<corner>[^」]{4,300})」|(?<![\w])'(?P<single>[^'\n]{6,300})'(?!\w)|«(?P<guillemet>[^»]{4,300})»"
)
_COMMAND = re.compile(
    r"(?<![\w/-])(?P<command>scancel\s+(?:-\S+\s+)*\d[\w.]*|scontrol\s+(?:update|hold|release|requeue|resume|suspend)\s+[^\s,;?。，]+(?:\s+\w+=[^\s,;?。，]+)*"
    r"|sbatch\s+\S+(?:\s+\S+)*|kill\s+(?:-\S+\s+)?\d+)",
    re.IGNORECASE,
)
_LOG_LINE = re.compile(
    r"(?P<line>(?:\[rank\d+\]:?|srun: error:|slurmstepd: error:|NVRM:|RuntimeError:|[A-Za-z.]*\w(?:Error|Exception"
    r"|Warning):|Traceback)[^<>?\n]{3,260}?)"
    r"(?=\s+(?:<-+|--?|–|—|=>)\s|[?]|\.\s+[a-z]|\s*$)"
)
_SEARCHES = re.compile(
    r"\b(?:grep|search|find|count|how many (?:lines|times)|lines (?:with|that)|occurrences|contains?|suche?|such|zähl\w*"
    r"|wie viele zeilen)\b|查找|搜索|多少行|几行|有几",
    re.IGNORECASE,
)
_PROCESS = re.compile(
    r"\b(?:pid|process(?: id)?|prozess|进程)\s*[=:#]?\s*(?P<number>\d{2,7})\b|\b(?:exit(?:ed)?(?: with)?(?: exit)? code"
    r"|exit-?code|rc)\s*[=:]?\s*(?P<code>\d{1,3})\b",
    re.IGNORECASE,
)
_KILLS = re.compile(r"\b(?:kill|stop|end|terminate|töten|beenden|killen)\b|杀|终止", re.IGNORECASE)
_KILLED = re.compile(r"kill\s+(?:-\S+\s+)?(\d+)", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_][A-Za-z_]{2,}|\d{2,}")
_UPDATE = re.compile(r"nodename=(?P<node>[\w.-]+).*?state=(?P<state>\w+)", re.IGNORECASE)
_ID = re.compile(r"\b(\d{2,9})\b")
_PROSE = re.compile(r"[a-z]{2,}|[\u3400-\u9fff]{2,}", re.IGNORECASE)
_WORKS = {"down": "cordon", "drain": "cordon", "resume": "uncordon", "idle": "uncordon", "undrain": "uncordon"}
_DID = re.compile(r"\b(?:did|has|have|was|is|hat|wurde|ist)\b|了吗|过吗|已经|成功", re.IGNORECASE)


class PastedText(NamedTuple):
    """A part of a sentence that was pasted, and the words around it."""

    text: str
    remainder: str
    quoted: bool


def pasted_in(sentence: str) -> PastedText | None:
    """Return what of a sentence was pasted; None where it holds nothing of the kind, or wants it searched for."""
    if _SEARCHES.search(_QUOTED.sub(" ", sentence)):
        return None
    for pattern in (_QUOTED, _LOG_LINE, _COMMAND):
        match = pattern.search(sentence)
        if match is None:
            continue
        text = next(filter(None, match.groups())).strip()
        remainder = f"{sentence[: match.start()]} {sentence[match.end() :]}".strip()
        if pattern is _QUOTED and len(_WORD.findall(text)) < FEWEST_WORDS:
            continue
        if len(_PROSE.findall(remainder)) >= FEWEST_WORDS or "?" in remainder or "？" in remainder:
            return PastedText(text, remainder, pattern is _QUOTED)
    return None


def pasted(question: RecordQuestion) -> list[str]:
    """Answer a question about pasted text."""
    paste = pasted_in(question.sentence)
    if paste is None:
        return process_number(question)
    if not paste.quoted and (killed := _KILLED.fullmatch(paste.text)) and killed[1] in question.turn.inventory.jobs:
        return []
    if not (
        question.asks
        or begins_as_question(paste.remainder.lower())
        or _DID.search(paste.remainder)
        or TRUE.search(paste.remainder.lower())
    ):
        return []
    if (command := _COMMAND.search(paste.text)) is not None and command.start() == 0:
        return _command(question, paste)
    return _preview(question, paste) or _log_line(question, paste) or _instruction(question, paste) or _nowhere(question, paste)


def _preview(question: RecordQuestion, paste: PastedText) -> list[str]:
    """Tell of text that is the preview of a change: which one, and whether it was made."""
    turn, words = question.turn, set(_WORD.findall(paste.text.lower()))
    waiting, changes = turn.look("list_approvals"), turn.look("recent_changes", hours=168.0)
    if len(words) < FEWEST_WORDS + 1:
        return []
    for row in waiting.value or ():
        if _share(words, row["change"]):
            incident = f", for incident {row['incident']}" if row["incident"] else ""
            lead = "No: it" if _DID.search(paste.remainder) and CARRIED_OUT.search(paste.remainder.lower()) else "It"
            return [
                f"{lead} is the preview of approval {row['approval']}{incident}, which still waits for a yes; nothing of it "
                f"is done: {one_line(row['change'], 160)} [{waiting.number}]."
            ]
    for row in changes.value or ():
        if _share(words, row["change"]):
            return [
                f"It is the change of call {row['call']} by {row['by']}, {row['status']}: {one_line(row['change'], 160)} "
                f"[{changes.number}]."
            ]
    return []


def _share(words: set[str], text: str) -> bool:
    return len(words & set(_WORD.findall(text.lower()))) >= 0.75 * len(words)


def _command(question: RecordQuestion, paste: PastedText) -> list[str]:
    """Tell what a command does here, and whether it shows in the record that it was given."""
    turn, inventory, text = question.turn, question.turn.inventory, paste.text
    update, number = _UPDATE.search(text), _ID.search(text)
    change = kind = name = ""
    if update is not None:
        change, kind, name = _WORKS.get(update["state"].lower(), ""), "node", _node_of(update["node"], inventory)
    elif text.lower().startswith("scancel") and number is not None:
        change, kind, name = "cancel", "job", number[1]
    elif text.lower().startswith("kill") and number is not None:
        return _process(question, number[1])
    elif re.match(r"scontrol\s+requeue", text, re.IGNORECASE) and number is not None:
        change, kind, name = "recover", "job", number[1]
    if not change or not name:
        return []
    if kind == "job" and name not in inventory.jobs:
        return [f"Job {name} is unknown to the scheduler, so it would do nothing here; nothing was run."]
    if _DID.search(paste.remainder) and (CARRIED_OUT.search(paste.remainder.lower()) or TRUE.search(paste.remainder.lower())):
        return made_or_not(question, change, kind, name)
    fact = job_fact(turn, name)[1] if kind == "job" else node_fact(turn, name)[1]
    does = {
        "cancel": f"It would end job {name}",
        "cordon": f"It would take {name} out of scheduling",
        "uncordon": f"It would put {name} back into scheduling",
        "recover": f"It would queue job {name} again",
    }[change]
    lead = "No: nothing on record speaks for it. " if SHOULD.search(paste.remainder.lower()) and change != "recover" else ""
    return [f"{lead}{does}; it was not run here: {fact}."]


def _node_of(text: str, inventory: NameInventory) -> str:
    return next((node for node in inventory.nodes if node.lower() == text.lower()), "")


def _log_line(question: RecordQuestion, paste: PastedText) -> list[str]:
    """Tell in which job's log a pasted line stands, and what that job ended by."""
    turn = question.turn
    words = _WORD.findall(paste.text)[:MOST_WORDS]
    if len(words) < FEWEST_WORDS and not re.search(r"error|exception", paste.text, re.IGNORECASE):
        return []
    pattern = ".*".join(re.escape(word) for word in words)
    for job in _jobs_to_search(question, paste):
        searched = turn.look("search_log", job=job, pattern=pattern, most=3)
        match = re.search(r"^\s*(\d+)  (.*)$", str(searched.value or ""), re.MULTILINE)
        if match is not None:
            return _line_told(question, paste, job, f"line {match[1]} of the log of job {job} [{searched.number}]")
    return _kernel_line(question, paste)


def _line_told(question: RecordQuestion, paste: PastedText, job: str, place: str) -> list[str]:
    incident, mark = incident_of(question.turn, job)
    blamed = list(incident["nodes_to_blame"]) if incident is not None else []
    reason = str(incident["reason"]) if incident is not None else ""
    verdict = to_blame(question, reason, blamed) if reason else ""
    owner = question.turn.inventory.owners.get(job, "")
    by = (
        f"{reason_text(reason)}{f' on {fold(blamed)}' if blamed else ', blamed on no node'} (incident "
        f"{incident['incident']}) {mark}"
        if incident is not None
        else "no incident"
    )
    lead = f"{verdict}: it is {place}" if verdict else f"It is {place}"
    if verdict:
        lead = f"{verdict}; it is {place}"
    if not verdict and SHOULD.search(paste.remainder.lower()):
        lead = f"No: it is {place}"
    return [f"{lead}, of {owner}; that job ended by {by}.", f"{_capital(job_fact(question.turn, job)[1])}."]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _kernel_line(question: RecordQuestion, paste: PastedText) -> list[str]:
    """Tell which incident a line of a kernel log belongs to."""
    turn, words = question.turn, {word.lower() for word in _WORD.findall(paste.text)}
    listed = turn.look("list_incidents", limit=50)
    for row in (listed.value or ())[:MOST_LOGS]:
        source = turn.look("show_incident", incident=row["incident"])
        for line in ((source.value or {}).get("diagnosis") or {}).get("root_cause") or ():
            if len(words) >= FEWEST_WORDS and len(words & {word.lower() for word in _WORD.findall(line["text"])}) >= 0.75 * len(
                words
            ):
                return _line_told(
                    question,
                    paste,
                    str(row["job"]),
                    f"{line['file']}:{line['line']} of incident {row['incident']} [{source.number}]",
                )
    return []


def _jobs_to_search(question: RecordQuestion, paste: PastedText) -> list[str]:
    """Return the jobs in whose logs a pasted line may stand: named ones, those on a named node, then all that failed."""
    turn = question.turn
    within = mentioned(paste.text, turn.inventory)
    jobs = [*question.mention.jobs]
    nodes = {*(within.nodes if within is not None else ()), *question.mention.nodes}
    listed = turn.look("list_jobs", limit=100_000)
    rows = sorted(listed.value or (), key=lambda row: str(row["ended"] or ""), reverse=True)
    on_nodes = [row["job"] for row in rows if nodes & set(row["nodes"]) and row["started"]]
    other_jobs = [*turn.inventory.failed, *(row["job"] for row in rows if row["state"] == "running")]
    return jobs or list(dict.fromkeys([*on_nodes, *other_jobs]))[:MOST_LOGS]


def _instruction(question: RecordQuestion, paste: PastedText) -> list[str]:
    """Answer a quoted order or instruction: whether it was followed, or what it would come to."""
    turn, change = question.turn, change_in(paste.text.lower())
    within = mentioned(paste.text, turn.inventory)
    jobs = list(dict.fromkeys([*(within.jobs if within is not None else ()), *question.mention.jobs]))
    nodes = list(dict.fromkeys([*(within.nodes if within is not None else ()), *question.mention.nodes]))
    if change == "recover" and len(jobs) == 1:
        choice = turn.look("choose_checkpoint", job=jobs[0])
        step = (choice.value or {}).get("step")
        waiting = waiting_rows(turn, jobs[0])
        wait_text = (
            f"; approval {waiting[0]['approval']} waits for just that: {one_line(waiting[0]['change'], 120)} "
            f"[{turn.look('list_approvals').number}]"
            if waiting
            else ""
        )
        rows = (choice.value or {}).get("refused") or ()
        problems = "; ".join(f"step {row['step']}, {'; '.join(row['problems'])}" for row in rows if isinstance(row, Mapping))
        not_whole = f"; not whole: {one_line(problems, 160)}" if problems else ""
        return [f"Step {step}: the newest whole checkpoint of job {jobs[0]} [{choice.number}]{wait_text}{not_whole}."]
    if change in ("cancel", "recover") and len(jobs) == 1:
        return made_or_not(question, change, "job", jobs[0])
    if change in ("cordon", "uncordon") and len(nodes) == 1:
        return made_or_not(question, change, "node", nodes[0])
    if len(nodes) == 1:
        state, fact = node_fact(turn, nodes[0])
        back = re.search(r"back|cycled|up|resum|wieder|恢复|好了", paste.text.lower())
        holds = state not in ("down", "drained", "draining") if back else None
        return [f"{'Not known' if holds is None else 'Yes' if holds else 'No'}: {fact}.", "The text itself is not on record here."]
    return []


def _nowhere(question: RecordQuestion, paste: PastedText) -> list[str]:
    """Say that a line stands in no log that was looked at, where it looks like one."""
    if paste.quoted and not re.search(r"error|exception|fail|warn|fatal|timeout", paste.text, re.IGNORECASE):
        return []
    jobs_searched = [source.arguments["job"] for source in question.turn.sources if source.tool == "search_log"]
    if not jobs_searched or not re.search(r"[A-Z]\w*(?:Error|Exception)|error:", paste.text):
        return []
    return [
        f"Not on record: the words of that line stand in no log of {', '.join(f'job {job}' for job in jobs_searched)} in "
        f"this order."
    ]


def process_number(question: RecordQuestion) -> list[str]:
    """Answer `pid 812, should I kill it?`: a process id or an exit code is no job."""
    match = _PROCESS.search(question.sentence)
    if match is None or match["number"] is None or not question.asks:
        return []
    return _process(question, match["number"])


def _process(question: RecordQuestion, number: str) -> list[str]:
    turn = question.turn
    listed = turn.look("list_incidents", limit=50)
    lead = "No" if _KILLS.search(question.sentence) else "It"
    for row in (listed.value or ())[:MOST_LOGS]:
        source = turn.look("show_incident", incident=row["incident"])
        diagnosis: Mapping[str, Any] = (source.value or {}).get("diagnosis") or {}
        for line in diagnosis.get("root_cause") or ():
            if re.search(rf"(?<!\d){re.escape(number)}(?!\d)", str(line["text"])):
                place = f" on {fold(row['nodes_to_blame'])}" if row["nodes_to_blame"] else ""
                ended = job_fact(turn, str(row["job"]))[1]
                return [
                    f"{'No: ' if lead == 'No' else ''}{number} is a process id in a line of incident "
                    f"{row['incident']}{place}, no job, and that process went with its job [{source.number}]: {ended}."
                ]
    return [
        f"{'No: ' if lead == 'No' else ''}{number} is a process id and no job; no record names it, and Nightshift ends no "
        f"processes of a node [{listed.number}]."
    ]


__all__ = ["FORMS", "PastedText", "pasted", "pasted_in"]
