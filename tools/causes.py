"""Ask whether what several jobs lost is there again: a path as a node reads it, a host, the port of a service. It only looks."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import OwnerDenied, ToolError, Unavailable
from assistant.ports import Reply
from assistant.records import Risk
from assistant.tooling import Context, tool
from assistant.untrusted import list_folder, reading_as, status_of, within
from assistant.watch.outages import OBJECT_STORAGE, CauseKind, SharedCause

ANSWERS, WAITING, NOT_ASKED = "cause_answers", "waiting", "not_asked"
NODES_ASKED = 2
LOOK_S = 10.0
MOST_NAMES = 10_000
WEB_PORT = "443"
"""Tried where a service was named without a port: it was named in a URL, or by a client of one."""
_HOST = re.compile(r"(?=.{1,253}(?::|$))([A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}))(?::(\d{1,5}))?")
_MISSING = re.compile(
    r"No such file|Stale|Input/output|not connected|denied|Host is down|shutdown|Not a directory|Remote I/O", re.I
)


class Answer(NamedTuple):
    """What one place says about a cause."""

    good: bool | None
    """None where it cannot tell."""
    text: str


class PathsAsked(NamedTuple):
    """What is looked for where several jobs lost a path."""

    cause: str
    paths: Sequence[str]
    """At or below the cause; empty: the cause alone."""
    missed: Sequence[str]
    """Of those the ones for which a folder with something in it is no answer."""

    @property
    def wanted(self) -> Sequence[str]:
        """Everything that is looked for."""
        return self.paths or [self.cause]


@tool(risk=Risk.READ)
def probe_cause(
    context: Context, cause: str, paths: list[str] | None = None, job: str = "", missed: list[str] | None = None
) -> dict[str, Any]:
    """Tell whether what several jobs failed of answers again; `status` is cause_answers, waiting or not_asked.

    A path is looked at from up to two nodes of the job and from here, with the rights of the job's owner. A service is connected
    to and nothing is sent. Where no place can tell, the status is waiting.

    Args:
        cause: A path, or a host with or without a port.
        paths: Paths at or below `cause` that jobs failed of: each must be there, or `cause` a folder with something in it.
        job: Scheduler job id of a job that failed of it: from its nodes, and with its owner's rights.
        missed: Of the paths those that jobs did not find in a folder that stands: they must be there, whatever else is.
    """
    known = SharedCause.of_title(cause)
    nodes, account = _of_job(context, job)
    if known.kind is CauseKind.PATH:
        asked = PathsAsked(known.name, paths or [], missed or [])
        answers = [*_path_on_nodes(context, nodes, asked), _path_here(asked, account)]
    elif known.kind is CauseKind.SERVICE and known.name != OBJECT_STORAGE:
        match = _HOST.fullmatch(known.name)
        if match is None:
            raise ToolError(f"{cause!r} is no name of a host; wanted HOST or HOST:PORT")
        host, port = match[1], match[2] or WEB_PORT
        answers = _service_on_nodes(context, nodes, host, port)
        if all(answer.good is None for answer in answers):
            answers.append(_service_here(host, int(port)))
    else:
        return {"status": NOT_ASKED, "note": f"{cause} names nothing that can be asked"}
    bad = [answer.text for answer in answers if answer.good is False]
    good = [answer.text for answer in answers if answer.good]
    if bad or not good:
        return {"status": WAITING, "note": (bad or [answer.text for answer in answers])[0]}
    return {"status": ANSWERS, "note": good[0]}


def _of_job(context: Context, job: str) -> tuple[Sequence[str], str]:
    if not job:
        return (), ""
    try:
        shown = context.scheduler.job(job)
    except (ToolError, Unavailable):
        return (), "nobody"  # whose rights count is not known
    return shown.nodes[:NODES_ASKED], shown.account


def _path_on_nodes(context: Context, nodes: Sequence[str], asked: PathsAsked) -> list[Answer]:
    if not nodes:
        return []
    cause = asked.cause
    replies = _stat(context, nodes, asked.wanted)
    answers: list[Answer] = []
    for node, reply in replies.items():
        said = (reply.err or reply.out).strip().splitlines()
        if reply.reached and reply.status == 0:
            answers.append(Answer(True, f"{cause} can be read on {node}"))
        elif reply.reached and reply.status == 1 and said and _MISSING.search(said[-1]):
            again = cause not in asked.wanted and _has_entries(context, node, cause)
            again = again and (not asked.missed or _stat(context, [node], asked.missed)[node].status == 0)
            answers.append(Answer(again, f"{node}: {said[-1]}" if not again else f"{cause} can be read on {node}"))
        else:
            answers.append(Answer(None, f"{node} could not be asked: {said[-1] if said else f'status {reply.status}'}"))
    return answers


def _stat(context: Context, nodes: Sequence[str], paths: Sequence[str]) -> Mapping[str, Reply]:
    command = ("stat", "-L", "-c", "%F", "--", *paths)
    return context.transport.run(nodes, command, timeout_s=min(LOOK_S, context.command_timeout_s))


def _has_entries(context: Context, node: str, folder: str) -> bool:
    command = ("find", "-L", folder, "-mindepth", "1", "-maxdepth", "1", "-print", "-quit")
    reply = context.transport.run([node], command, timeout_s=min(LOOK_S, context.command_timeout_s))[node]
    return bool(reply.reached and reply.status == 0 and reply.out.strip())


def _path_here(asked: PathsAsked, account: str) -> Answer:
    """Look from this machine; one that has not even the first folder of a path does not share its file system."""
    cause = asked.cause

    def look() -> Answer:
        missing = ""
        for path in (*asked.missed, *asked.wanted):
            try:
                status_of(Path(path))
            except FileNotFoundError:
                missing = missing or path
        if not missing:
            return Answer(True, f"{cause} can be read here")
        try:
            status_of(Path("/", Path(cause).parts[1]))
        except OSError:
            return Answer(None, f"{cause} is not shared with this machine")
        if missing not in asked.missed and cause not in asked.wanted and list_folder(Path(cause), MOST_NAMES):
            return Answer(True, f"{cause} can be read here")
        return Answer(False, f"{missing}: No such file or directory")

    try:
        with reading_as(account):
            return within(LOOK_S, look, cause)
    except FileNotFoundError:
        return Answer(False, f"{cause}: No such file or directory")
    except (PermissionError, OwnerDenied):
        return Answer(None, f"{cause}: may not be read from here with the rights of its owner")
    except (OSError, Unavailable, ToolError) as error:
        return Answer(False, f"{cause}: {getattr(error, 'strerror', None) or error}")


def _service_on_nodes(context: Context, nodes: Sequence[str], host: str, port: str) -> list[Answer]:
    if not nodes:
        return []
    # $0 and $1: what a log names is an argument and never part of the program
    command = ("bash", "-c", 'exec 3<>"/dev/tcp/$0/$1"', host, port)
    replies = context.transport.run(nodes, command, timeout_s=min(LOOK_S, context.command_timeout_s))
    answers: list[Answer] = []
    for node, reply in replies.items():
        said = (reply.err or reply.out).strip().splitlines()
        text = f"{host}:{port} from {node}: {said[0] if said else 'answers' if reply.status == 0 else f'status {reply.status}'}"
        good = {0: True, 1: False}.get(reply.status) if reply.reached and reply.status is not None else None
        answers.append(Answer(good, text))
    return answers


def _service_here(host: str, port: int) -> Answer:
    def look() -> Answer:
        try:
            with socket.create_connection((host, port), timeout=LOOK_S / 2):
                return Answer(True, f"{host}:{port} answers")
        except OSError as error:
            return Answer(False, f"{host}:{port}: {error.strerror or error}")

    try:
        return within(LOOK_S, look, f"{host}:{port}")
    except Unavailable as error:
        return Answer(False, str(error))
