"""The sentence that answers an aspect of a failure or of several: whose fault, how sure, which line, which node, the same cause.

Each is made from recorded diagnoses and incidents; what has no diagnosis is said to be unknown, and is no `no`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from assistant.agent.answer import AnswerSource, count_text, one_line
from assistant.agent.aspects import FAMILIES, OURS, THEIRS
from assistant.agent.dialogue import QuestionTurn
from assistant.content.reasons import reasons
from assistant.nodeset import fold

Row = Mapping[str, Any]
MOST_INCIDENTS, MOST_TOLD = 400, 6
_SURE_WORDS = ((0.95, "Very sure"), (0.8, "Fairly sure"), (0.5, "Not very sure"), (0.0, "Not sure"))
_FILE_LINE = re.compile(r"((?:/|\b)[\w./+-]+\.(?:py|pyx|cu|cpp|cc|c|h|sh|jl|rs|go)):(\d+)\b")
_TRACE = re.compile(r"File \"([^\"]+)\", line (\d+)")
_PCI = re.compile(r"PCI:?\s*([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)")


def title(reason: str | None) -> str:
    """Return what a reason is called in words."""
    entry = reasons().get(reason or "")
    return entry.title if entry is not None else (reason or "no diagnosis").replace("_", " ")


def category(reason: str | None) -> str:
    """Return the family of a reason."""
    entry = reasons().get(reason or "")
    return str(entry.category) if entry is not None else ""


def side_of(reason: str | None, owner: str) -> str:
    """Return whose fault a reason is, in words."""
    kind = category(reason)
    if kind == "infrastructure":
        return "the cluster (hardware or infrastructure)"
    if kind == "script":
        return f"{owner}'s code" if owner else "the job's own code"
    if kind == "framework":
        return (
            f"{owner}'s side (the job's code, its libraries or its settings)" if owner else "the job's code, libraries or settings"
        )
    return ""


def side(turn: QuestionTurn, text: str) -> str:
    """Return whose fault the failure of a job was."""
    source = _explained(turn)
    if source.error:
        return ""
    diagnosis, mark = source.value, f"[{source.number}]"
    reason, owner = diagnosis["reason"], turn.inventory.owners.get(turn.request.job, "")
    culprit_text = side_of(reason, owner)
    if not culprit_text:
        return f"Not known whose fault it was: job {turn.request.job} has {title(reason)}, which speaks for neither side {mark}."
    nodes = [entry["node"] for entry in diagnosis["nodes"]]
    blame = f"{fold(nodes)} is to blame" if nodes else "no node is to blame"
    return (
        f"{_side_answer(text, culprit_text)}{_first_upper(culprit_text)}: job {turn.request.job} failed of"
        f" {title(reason)}, {blame} {mark}."
    )


def _side_answer(text: str, culprit_text: str) -> str:
    """Return the yes or no for a question that names one side only."""
    ours, theirs = re.search(rf"\b(?:{OURS})\b", text), re.search(rf"\b(?:{THEIRS})\b", text)
    if (ours and theirs and re.search(r"\bor\b", text)) or bool(ours) is bool(theirs) or "whose" in text:
        return ""
    return "Yes. " if culprit_text.startswith("the cluster") is bool(ours) else "No. "


def _first_upper(text: str) -> str:
    return text[:1].upper() + text[1:] if not re.match(r"\w+'s\b", text) else text


def certainty(turn: QuestionTurn, text: str) -> str:
    """Return how sure a diagnosis is, and what it rests on."""
    source = _explained(turn)
    if source.error or source.value["reason"] in ("unknown", "no_failure"):
        return "" if source.error else f"Not sure at all: why job {turn.request.job} ended is not known [{source.number}]."
    diagnosis, mark = source.value, f"[{source.number}]"
    word = next(words for least, words in _SURE_WORDS if diagnosis["confidence"] >= least)
    head = f"{word} ({diagnosis['confidence']:.2f} of 1, by {diagnosis['by']}): {title(diagnosis['reason'])}"
    nodes = [entry["node"] for entry in diagnosis["nodes"]]
    head += f" on {fold(nodes)}" if nodes else ", and no node is to blame"
    line = next(iter(diagnosis["root_cause"]), None)
    shows = f"; {line['file']}:{line['line']} shows it: {one_line(line['text'], 160)}" if line else ""
    rivals = [row for row in diagnosis["rivals"] if row["confidence"] >= 0.15]
    against = f"; weighed against {rivals[0]['reason']} ({rivals[0]['confidence']:.2f})" if rivals else ""
    return f"{head} {mark}{shows}{against}."


def certainty_of_hardware(turn: QuestionTurn, text: str) -> str:
    """Return how sure the diagnosis is of the newest failure that is blamed on the cluster: `how sure are you it was the gpu`."""
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    row = next((row for row in listed.value or () if row["job"] and category(row["reason"]) == "infrastructure"), None)
    if row is None:
        return f"No incident is blamed on hardware or infrastructure [{listed.number}]." if not listed.error else ""
    turn.about = {"job": row["job"]}
    turn.request = replace(turn.request, job=row["job"])
    return f"{certainty(turn, text).rstrip('.')}; that is job {row['job']}."


def place_in_code(turn: QuestionTurn, text: str) -> str:
    """Return the line of the source at which a job failed, from its diagnosis or its traceback."""
    source = _explained(turn)
    job = turn.request.job
    if source.error:
        return ""
    diagnosis = source.value
    if match := _FILE_LINE.search(f"{diagnosis['advice']} {diagnosis['summary']}"):
        return f"Line {match[2]} of {match[1]}: there job {job} failed, {title(diagnosis['reason'])} [{source.number}]."
    trace = turn.look("search_log", job=job, pattern=r'File "[^"]+", line \d+', most=12)
    places = _TRACE.findall(str(trace.value or ""))
    if not places:
        return f"Not known: neither the diagnosis nor a traceback in the log of job {job} names a line [{source.number}]."
    file, number = places[-1]
    return f"Line {number} of {file}: the last of the traceback in the log of job {job} [{trace.number}]."


def culprit(turn: QuestionTurn, text: str) -> str:
    """Return the node to which a diagnosis gives the blame; it is what `it` stands for next."""
    source = _explained(turn)
    if source.error:
        return ""
    nodes = source.value["nodes"]
    if not nodes:
        return f"No node: {title(source.value['reason'])} of job {turn.request.job} is blamed on none [{source.number}]."
    turn.about = {"nodes": tuple(entry["node"] for entry in nodes)}
    return f"{fold([entry['node'] for entry in nodes])}: {one_line(nodes[0]['why'], 200).rstrip('.')} [{source.number}]."


def steps_lost(turn: QuestionTurn, text: str) -> str:
    """Return how many steps a job makes again, from its last step and the checkpoint that a restart takes."""
    job = turn.request.job
    choice, reached = turn.look("choose_checkpoint", job=job), turn.look("job_progress", job=job, timeout_s=0.0)
    step = (reached.value or {}).get("step")
    begin = 0 if (choice.value or {}).get("restart_from") == "none" else (choice.value or {}).get("step")
    if not isinstance(step, int) or not isinstance(begin, int):
        return f"Not known: of job {job} the last step or the checkpoint to restart from is not known [{choice.number}]."
    lost = count_text(max(0, step - begin), "step")
    return f"{lost}: job {job} had reached step {step} [{reached.number}] and would restart from step {begin} [{choice.number}]."


def _explained(turn: QuestionTurn) -> AnswerSource:
    return turn.look("explain_job", job=turn.request.job)


# Several incidents


def scope(turn: QuestionTurn) -> tuple[list[Row], AnswerSource]:
    """Return the incidents that a question is about: those of the last list, else those of its span of time."""
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    rows: list[Row] = [row for row in listed.value or () if row["job"] or row["node"]]
    text = turn.request.names.sketch.lower()
    points = re.search(r"\b(?:those|them|these|they|both|either|the two|the three|which|related|connected|it all)\b", text)
    if (points or turn.request.aspect in ("same_cause", "which_of")) and turn.listed:
        of_list = [row for row in rows if {str(row["incident"]), row["job"], row["node"]} & {*turn.listed}]
        return of_list or rows, listed
    if turn.request.names.hours:
        since = turn.now - timedelta(hours=turn.request.names.hours)
        return [row for row in rows if datetime.fromisoformat(row["opened"]) >= since], listed
    return rows, listed


def about_text(row: Row) -> str:
    """Return what an incident is about, as it is told in a list."""
    return f"job {row['job']}" if row["job"] else str(row["node"])


def _family_of(text: str) -> tuple[str, frozenset[str]]:
    return next(
        ((name, names) for name, (words, names) in FAMILIES.items() if re.search(rf"\b(?:{words})\b", text)), ("", frozenset())
    )


def _fits(row: Row, family: str, names: frozenset[str]) -> bool:
    if family == "hardware":
        return category(row["reason"]) == "infrastructure"
    if family == "code":
        return category(row["reason"]) in ("script", "framework")
    return row["reason"] in names


def _row_text(row: Row) -> str:
    nodes = f" on {fold(row['nodes_to_blame'])}" if row["nodes_to_blame"] else ""
    return f"{about_text(row)} ({title(row['reason'])}{nodes})"


def which_of(turn: QuestionTurn, text: str) -> str:
    """Return which of several failures are of a kind."""
    rows, listed = scope(turn)
    family, names = _family_of(text)
    if listed.error or not family:
        return ""
    hits = [row for row in rows if _fits(row, family, names)]
    if len(hits) == 1:
        turn.incidents.append(hits[0]["incident"])
        turn.about = {"job": hits[0]["job"]} if hits[0]["job"] else {"nodes": (hits[0]["node"],)}
    if not hits:
        return f"None of them: {_reasons_text(rows)} [{listed.number}]."
    of = f", of {count_text(len(rows), 'incident')}" if len(rows) > len(hits) else ""
    return f"{_first_upper('; '.join(map(_row_text, hits[:MOST_TOLD])))}{of} [{listed.number}]."


def any_of(turn: QuestionTurn, text: str) -> str:
    """Return whether any failure is of a kind."""
    rows, listed = scope(turn)
    family, names = _family_of(text)
    if listed.error or not family:
        return ""
    hits = [row for row in rows if _fits(row, family, names)]
    if hits:
        return (
            f"Yes, {count_text(len(hits), 'failure')} of that kind: {'; '.join(map(_row_text, hits[:MOST_TOLD]))}"
            f" [{listed.number}]."
        )
    silent = [row for row in rows if not row["reason"] or row["reason"] == "unknown"]
    without = f"; {count_text(len(silent), 'incident')} without a known reason" if silent else ""
    span = f" in {turn.request.names.span}" if turn.request.names.span else ""
    recorded = _reasons_text(rows)
    return f"No, as far as recorded: no incident{span} is of that kind ({recorded or 'there are none'}{without}) [{listed.number}]."


def _reasons_text(rows: Sequence[Row]) -> str:
    counts = Counter(str(row["reason"]) for row in rows if row["reason"])
    return ", ".join(f"{reason} x {count}" for reason, count in counts.most_common())


def same_cause(turn: QuestionTurn, text: str) -> str:
    """Return whether several failures have one cause: the same reason, and where nodes are to blame the same ones."""
    rows, listed = scope(turn)
    if listed.error or len(rows) < 2:
        return "" if listed.error else f"There is one incident at most, so nothing can be compared [{listed.number}]."
    rows = list(rows[:MOST_TOLD])
    if any(not row["reason"] or row["reason"] == "unknown" for row in rows):
        return f"Not known: not all of them have a diagnosis: {'; '.join(map(_row_text, rows))} [{listed.number}]."
    one_reason = len({row["reason"] for row in rows}) == 1
    nodes = {tuple(row["nodes_to_blame"]) for row in rows}
    rows_text = "; ".join(map(_row_text, rows))
    if not one_reason:
        return f"No: {rows_text} [{listed.number}]."
    return f"{'Yes' if len(nodes) == 1 else 'The same reason, but not the same nodes'}: {rows_text} [{listed.number}]."


def same_device(turn: QuestionTurn, text: str) -> str:
    """Return whether a failure and the last of the same reason name the same device, by the lines that prove them."""
    source = turn.look("show_incident", incident=turn.request.incident) if not turn.request.job else _explained(turn)
    diagnosis = (source.value or {}).get("diagnosis") or source.value or {}
    incident = (source.value or {}).get("incident")
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    earlier_rows = [row for row in listed.value or () if row["reason"] == diagnosis.get("reason") and row["incident"] != incident]
    if source.error or listed.error or not earlier_rows:
        return ""
    earlier = turn.look("show_incident", incident=earlier_rows[0]["incident"])
    theirs = (earlier.value or {}).get("diagnosis") or {}
    marks = f"[{source.number}][{earlier.number}]"
    device, other_device = devices_of(diagnosis), devices_of(theirs)
    nodes, other_nodes = [row["node"] for row in diagnosis.get("nodes", ())], [row["node"] for row in theirs.get("nodes", ())]
    nodes_text = f"node {fold(nodes) or 'not known'} and {fold(other_nodes) or 'not known'}"
    if nodes and other_nodes and nodes != other_nodes:
        return (
            f"No: incident {incident} is on {fold(nodes)}, incident {earlier_rows[0]['incident']} on {fold(other_nodes)} {marks}."
        )
    if re.search(r"\bnode|machine|box|host\b", text) and nodes and nodes == other_nodes:
        return f"Yes: both on {fold(nodes)}{f', PCI {device[0]}' if device and device == other_device else ''} {marks}."
    if not device or not other_device:
        return f"Not known: not both name the device ({nodes_text}) {marks}."
    if device == other_device and nodes == other_nodes:
        return f"Yes: both name PCI {device[0]} on {fold(nodes)} {marks}."
    return f"No: PCI {', '.join(device)} and PCI {', '.join(other_device)} ({nodes_text}) {marks}."


def devices_of(diagnosis: Mapping[str, Any]) -> list[str]:
    """Return the PCI addresses that the lines of a diagnosis name."""
    lines = [line["text"] for line in diagnosis.get("root_cause") or ()]
    lines += [line["text"] for entry in diagnosis.get("nodes") or () for line in entry.get("lines") or ()]
    return sorted({match.lower() for line in lines for match in _PCI.findall(str(line))})


def outcome(turn: QuestionTurn, text: str) -> str:
    """Return whether a job is back, by its incident; the state of the job that failed says nothing about that."""
    job = turn.request.job
    listed = turn.look("list_incidents", job=job)
    row = next(iter(listed.value or ()), None)
    if listed.error or row is None:
        return ""
    turn.incidents.append(row["incident"])
    return f"{_outcome_text(row)} [{listed.number}]."


def _outcome_text(row: Row) -> str:
    about, note = f"incident {row['incident']} about {about_text(row)}", one_line(row["note"], 160)
    because = f": {note}" if note else ""
    if row["state"] == "recovered":
        return f"Yes, {about} is recovered{because}"
    if row["state"] == "waiting":
        return f"Not yet, {about} waits{because}"
    if row["state"] == "escalated":
        return f"No, {about} was handed to a person{because}"
    if row["ended"]:
        return f"No, {about} is {row['state']}{because}"
    return f"Not yet, {about} is {row['state']}{because}"


def outcomes(turn: QuestionTurn, text: str) -> str:
    """Return whether all of several failures are back."""
    rows, listed = scope(turn)
    if listed.error or not rows:
        return ""
    open_rows = [row for row in rows if row["state"] not in ("recovered", "closed")]
    if not open_rows:
        return f"Yes: all {count_text(len(rows), 'incident')} are over [{listed.number}]."
    rows_text = "; ".join(f"incident {row['incident']} ({about_text(row)}) is {row['state']}" for row in open_rows[:MOST_TOLD])
    return f"No: {rows_text}; {len(rows) - len(open_rows)} of {len(rows)} are over [{listed.number}]."


FAILURE_ASPECTS: Mapping[str, Callable[[QuestionTurn, str], str]] = {
    "side": side,
    "certainty": certainty,
    "certainty_of_hardware": certainty_of_hardware,
    "place_in_code": place_in_code,
    "culprit": culprit,
    "steps_lost": steps_lost,
    "which_of": which_of,
    "any_of": any_of,
    "same_cause": same_cause,
    "same_device": same_device,
    "outcome": outcome,
    "outcomes": outcomes,
}
