"""Ask whether what jobs lost is there again: a path as a node reads it, a host, the port of a service. It only looks.

Nothing is sent to a service, and only those are connected to that the policy lists or the job's own configuration names.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import OwnerDenied, ToolError, Unavailable
from assistant.ports import Reply
from assistant.records import Risk
from assistant.recover.services import WEB_PORTS, ServiceRight, configured_texts, service_right
from assistant.tooling import Context, tool
from assistant.untrusted import list_folder, reading_as, status_of, within
from assistant.watch.outages import OBJECT_STORAGE, CauseKind, SharedCause, probe_pause_s

logger = logging.getLogger(__name__)

ANSWERS, WAITING, NOT_ASKED, MAY_RESTART = "cause_answers", "waiting", "not_asked", "may_restart"
NODES_ASKED = 2
MOST_OWN = 32
"""Nodes of a job with whose addresses that of a service is compared."""
LOOK_S = 10.0
PROGRAM_S = 9
"""The program that connects waits 4 s for the service, and ends after so long whatever hangs."""
OF_THE_JOB, BY_PROXY, SILENT = 42, 43, 124
"""Exit codes of the program that connects: the host is a node of the job itself; the web is reached through a proxy; no answer."""
_CONNECT = (
    "h=$0 p=$1; shift; case $p in 80|443) "
    'grep -Eiqs "^[^#]*\\b(https?|all)_proxy=" /etc/environment /etc/profile.d/*.sh && exit 43 ;; esac; '
    'if [ "$p" ]; then s=$(timeout -k 1 4 bash -c \'exec 3<>"/dev/tcp/$0/$1"\' "$h" "$p" 2>&1); r=$?; '
    'elif timeout -k 1 4 getent ahosts "$h" >/dev/null; then r=0; else r=1; s="Name or service not known"; fi; '
    '[ $r = 0 ] && exit 0; a=" $(timeout 2 getent ahosts "$h" | cut -d" " -f1 | sort -u | tr "\\n" " ")"; '
    'for n; do [ "$n" = "$h" ] && { echo "$n"; exit 42; }; for b in $(timeout 1 getent ahosts "$n" | cut -d" " -f1 | sort -u); do '
    'case "$a" in *" $b "*) echo "$n"; exit 42 ;; esac; done; done; echo "${s##*: }"; exit $r'
)
"""Arguments: host, port or nothing, nodes of the job. What a log names is an argument and never part of the program.

The nodes of the job are compared only with a host that does not answer.
"""
MOST_NAMES = 10_000
MOST_COMPARED = 8
"""Nodes that are asked about one host."""
WEB_PORT = "443"
"""Tried where several jobs name a service without a port: it was named in a URL, or by a client of one."""
_HOST = re.compile(r"(?=.{1,253}(?::|$))([A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}))(?::(\d{1,5}))?")
_PROXY = re.compile(r"\b(?:https?|all)_proxy\b\s*[\"'\]]*\s*[=:]", re.I)
_NO_NAME = re.compile(r"not known|name resolution|no address", re.I)
_MISSING = re.compile(
    r"No such file|Stale|Input/output|not connected|denied|Host is down|shutdown|Not a directory|Remote I/O", re.I
)


class Answer(NamedTuple):
    """Answer of one place, a node or this machine, about a cause."""

    good: bool | None
    """None where it cannot tell."""
    text: str
    of_job: bool = False
    """Whether the cause is a node of the job itself."""
    silent: bool = False
    """Whether nothing refused it: no answer in time, or no address for the name."""


class PathQuestion(NamedTuple):
    """Which paths are looked at where several jobs lost one."""

    cause: str
    paths: Sequence[str]
    """At or below the cause; empty: the cause alone."""
    missed: Sequence[str]
    """Of those the ones for which a folder with something in it is no answer."""

    @property
    def targets(self) -> Sequence[str]:
        """Paths that are looked at."""
        return self.paths or [self.cause]


@tool(risk=Risk.READ)
def probe_cause(
    context: Context, cause: str, paths: list[str] | None = None, job: str = "", missed: list[str] | None = None
) -> dict[str, Any]:
    """Tell whether what several jobs failed of answers again; `status` is cause_answers, waiting or not_asked.

    A path is looked at from up to two nodes of the job and from here, with the rights of the job's owner. A service is connected
    to and nothing is sent; only one that the policy lists (`services`) or the job's configuration names. Where no place can tell,
    the status is waiting.

    Args:
        cause: A path, or a host with or without a port.
        paths: Paths at or below `cause` that jobs failed of: each must be there, or `cause` a folder with something in it.
        job: Scheduler job id of a job that failed of it: from its nodes, and with its owner's rights.
        missed: Of the paths those that jobs did not find in a folder that stands: they must be there, whatever else is.
    """
    shared_cause = SharedCause.of_title(cause)
    if shared_cause.kind is CauseKind.PATH:
        answers = _of_path(context, job, PathQuestion(shared_cause.name, paths or [], missed or []))
    elif shared_cause.kind is CauseKind.SERVICE and shared_cause.name != OBJECT_STORAGE:
        host, port = _host_and_port(cause)
        refusal, answers = _of_service(context, job, host, port or WEB_PORT)
        if refusal:
            return {"status": NOT_ASKED, "note": refusal}
    else:
        return {"status": NOT_ASKED, "note": f"{cause} names nothing that can be asked"}
    bad = [answer.text for answer in answers if answer.good is False]
    good = [answer.text for answer in answers if answer.good]
    if bad or not good:
        return {"status": WAITING, "note": (bad or [answer.text for answer in answers])[0]}
    return {"status": ANSWERS, "note": good[0]}


@tool(risk=Risk.READ)
def wait_named(
    context: Context, job: str, cause: str, paths: list[str] | None = None, answered: str = "", timeout_s: float = 60.0
) -> dict[str, Any]:
    """Tell whether what a job's failure names is there again; `status` is may_restart or waiting.

    It looks as `probe_cause` does, each time it is called, but within one incident the rarer the longer it waits: in between it
    gives its last answer. `asked` is false where nothing was looked at: neither the policy nor the job's configuration names the
    service, it is a node of the job itself or reached through a proxy, or no node could be asked. Then the status is may_restart,
    and `note` says why. `appendix` says that it is there again, for a message that nothing was started all the same.

    Args:
        job: Scheduler job id of the job that failed: from its nodes, and with its owner's rights.
        cause: An absolute path, or a host with or without a port; without one only its name is looked up.
        paths: Paths at or below `cause` that the job failed of.
        answered: Not empty where the job had an answer of the service, such as HTTP 503: silence now only shows that it goes
            another way.
        timeout_s: Not used: it looks once, for the caller decides when to look again.
    """
    del timeout_s
    earlier = _last_answer(context)
    if earlier is not None:
        return earlier
    if cause.startswith("/"):
        answers = _of_path(context, job, PathQuestion(cause, paths or [], []))
    else:
        refusal, answers = _of_named(context, job, cause)
        answers = [answer._replace(good=None) if answered and answer.silent else answer for answer in answers]
        if refusal:
            return {"status": MAY_RESTART, "note": refusal, "asked": False, "appendix": ""}
    bad = [answer.text for answer in answers if answer.good is False]
    if bad:
        return {"status": WAITING, "note": f"waits for {cause}: {bad[0]}", "asked": True, "appendix": ""}
    good = [answer.text for answer in answers if answer.good]
    note = good[0] if good else f"{cause} could not be asked: {'; '.join(answer.text for answer in answers[:1]) or 'no node'}"
    appendix = f", though {cause} is there again" if good else ""
    return {"status": MAY_RESTART, "note": note, "asked": bool(good), "appendix": appendix}


@tool(risk=Risk.READ)
def host_compared(context: Context, job: str, host: str, nodes: list[str]) -> dict[str, Any]:
    """Tell which nodes resolve the name of a host, or connect to its port: `answers` by node, true, false or null; `texts` of each.

    Asked is only about a host that the policy lists (`services`), that the job's own configuration names, or that is a node of the
    cluster: else `note` says so and `answers` is empty. Null where a node could not be asked, or reaches the web through a proxy.

    Args:
        job: Scheduler job id of the job that failed.
        host: A name, with a port where it is to be connected to.
        nodes: Names of nodes on which that job ran or could run; eight are asked.
    """
    name, port = _host_and_port(host)
    configured = configured_texts(context.scheduler.job(job))
    right = service_right(name, port, listed=context.services, configured=configured)
    own_names = {entry.name.lower() for entry in context.scheduler.nodes()}
    of_cluster = not port and bool({name, name.partition(".")[0]} & own_names)
    if right is ServiceRight.NONE and not of_cluster:
        return {"answers": {}, "texts": {}, "note": f"{host} was not asked: neither the policy (services) nor job {job} names it"}
    command = ("timeout", "-k", "1", str(PROGRAM_S), "bash", "-c", _CONNECT, name, port)
    replies = context.transport.run(nodes[:MOST_COMPARED], command, timeout_s=min(LOOK_S, context.command_timeout_s))
    answers: dict[str, bool | None] = {}
    texts: dict[str, str] = {}
    for node, reply in replies.items():
        answers[node] = (
            {0: True, 1: False, SILENT: False}.get(reply.status or 0) if reply.reached and reply.status is not None else None
        )
        lines = (reply.err or reply.out).strip().splitlines()
        texts[node] = "it answers" if answers[node] else lines[-1][:200] if lines else f"status {reply.status}"
    return {"answers": answers, "texts": texts, "note": ""}


def _of_named(context: Context, job: str, cause: str) -> tuple[str, list[Answer]]:
    try:
        host, port = _host_and_port(cause)
    except ToolError as error:
        return f"it was not asked: {error}", []
    return _of_service(context, job, host, port, alone=True)


def _last_answer(context: Context) -> dict[str, Any] | None:
    """Return the last answer of this incident's looks while it is too early for another; None where one is due."""
    if context.incident is None:
        return None
    calls = [call for call in context.history.calls(context.incident) if call.tool == "wait_named"]
    answers = [
        (call.at, outcome.value) for call in calls if (outcome := context.history.outcome(call.id)) is not None and outcome.ok
    ]
    looks = [(at, value) for at, value in answers if isinstance(value, Mapping) and value.get("status") == WAITING]
    fresh = [at for at, value in looks if not value.get("repeats")]
    if not fresh:
        return None
    now = context.clock.now()
    pause_s = probe_pause_s((fresh[-1] - fresh[0]).total_seconds())
    if (now - fresh[-1]).total_seconds() >= pause_s:
        return None
    return {**looks[-1][1], "repeats": True}


def _host_and_port(cause: str) -> tuple[str, str]:
    match = _HOST.fullmatch(cause)
    if match is None or int(match[2] or 1) not in range(1, 65_536):
        raise ToolError(f"{cause!r} is no name of a host; wanted HOST or HOST:PORT")
    return match[1].lower(), match[2] or ""


def _of_path(context: Context, job: str, question: PathQuestion) -> list[Answer]:
    nodes, account = _of_job(context, job)
    return [*_path_on_nodes(context, nodes, question), _path_here(question, account)]


def _of_service(context: Context, job: str, host: str, port: str, *, alone: bool = False) -> tuple[str, list[Answer]]:
    """Return why a service was not asked, else what each place says of it; `alone`: the job's nodes count and not this machine."""
    configured: list[str] = []
    job_record = None
    try:
        job_record = context.scheduler.job(job) if job else None
        configured = configured_texts(job_record) if job_record is not None else []
    except (ToolError, Unavailable) as error:
        logger.info("job %s: its configuration is not known: %s", job, error)
    right = service_right(host, port, listed=context.services, configured=configured)
    name = f"{host}:{port}" if port else host
    if right is ServiceRight.NONE:
        return f"{name} was not asked: neither the policy (services) nor the configuration of job {job} names it", []
    if port in WEB_PORTS and any(_PROXY.search(text) for text in configured):
        return f"{name} was not asked: job {job} reaches the web through a proxy", []
    nodes = job_record.nodes if job_record is not None else ()
    answers = _service_on_nodes(context, nodes, host, port)
    own = next((answer.text for answer in answers if answer.of_job), "")
    if own:
        return own, []
    if right is ServiceRight.POLICY and port and not alone and all(answer.good is None for answer in answers):
        answers.append(_service_here(host, int(port)))
    return "", answers


def _of_job(context: Context, job: str) -> tuple[Sequence[str], str]:
    if not job:
        return (), ""
    try:
        job_record = context.scheduler.job(job)
    except (ToolError, Unavailable):
        return (), "nobody"  # whose rights count is not known
    return job_record.nodes[:NODES_ASKED], job_record.account


def _path_on_nodes(context: Context, nodes: Sequence[str], question: PathQuestion) -> list[Answer]:
    if not nodes:
        return []
    cause = question.cause
    replies = _stat(context, nodes, question.targets)
    answers: list[Answer] = []
    for node, reply in replies.items():
        output = (reply.err or reply.out).strip().splitlines()
        if reply.reached and reply.status == 0:
            answers.append(Answer(True, f"{cause} can be read on {node}"))
        elif reply.reached and reply.status == 1 and output and _MISSING.search(output[-1]):
            readable = cause not in question.targets and _has_entries(context, node, cause)
            readable = readable and (not question.missed or _stat(context, [node], question.missed)[node].status == 0)
            answers.append(Answer(readable, f"{node}: {output[-1]}" if not readable else f"{cause} can be read on {node}"))
        elif reply.reached and reply.status == SILENT:
            answers.append(Answer(False, f"{cause} does not answer on {node}"))
        else:
            answers.append(Answer(None, f"{node} could not be asked: {output[-1] if output else f'status {reply.status}'}"))
    return answers


def _stat(context: Context, nodes: Sequence[str], paths: Sequence[str]) -> Mapping[str, Reply]:
    command = ("timeout", "-k", "1", "5", "stat", "-L", "-c", "%F", "--", *paths)
    return context.transport.run(nodes, command, timeout_s=min(LOOK_S, context.command_timeout_s))


def _has_entries(context: Context, node: str, folder: str) -> bool:
    command = ("find", "-L", folder, "-mindepth", "1", "-maxdepth", "1", "-print", "-quit")
    reply = context.transport.run([node], command, timeout_s=min(LOOK_S, context.command_timeout_s))[node]
    return bool(reply.reached and reply.status == 0 and reply.out.strip())


def _path_here(question: PathQuestion, account: str) -> Answer:
    """Look from this machine; one that has not even the first folder of a path does not share its file system."""
    cause = question.cause

    def look() -> Answer:
        missing = ""
        for path in (*question.missed, *question.targets):
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
        if missing not in question.missed and cause not in question.targets and list_folder(Path(cause), MOST_NAMES):
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
    command = ("timeout", "-k", "1", str(PROGRAM_S), "bash", "-c", _CONNECT, host, port, *nodes[:MOST_OWN])
    replies = context.transport.run(nodes[:NODES_ASKED], command, timeout_s=min(LOOK_S, context.command_timeout_s))
    name = f"{host}:{port}" if port else host
    answers: list[Answer] = []
    for node, reply in replies.items():
        output = (reply.err or reply.out).strip().splitlines()
        if reply.reached and reply.status == OF_THE_JOB:
            text = (
                f"{name} was not asked: it is {output[-1] if output else 'a node'} of the job itself, where nothing of it runs now"
            )
            answers.append(Answer(None, text, of_job=True))
            continue
        if reply.reached and reply.status == BY_PROXY:
            answers.append(Answer(None, f"{name} is reached through a proxy on {node}, so a connection of its own says nothing"))
            continue
        good = {0: True, 1: False, SILENT: False}.get(reply.status) if reply.reached and reply.status is not None else None
        words = "accepts connections" if reply.status == 0 else "no answer in time"
        words = output[-1] if output and reply.status != 0 else words if reply.status in (0, SILENT) else f"status {reply.status}"
        answers.append(Answer(good, f"{name} from {node}: {words}", silent=reply.status == SILENT or bool(_NO_NAME.search(words))))
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
