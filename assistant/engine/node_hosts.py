"""Tell whether a host that a job could not resolve or reach is out of reach of its node alone, or of all nodes.

The same is asked of the node that raised the error and of others on which the job could run. A node is only left out by the
restart, and a person told: a name that does not resolve at one moment drains nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from assistant.engine.gather import ask
from assistant.engine.storage import comparable_nodes, nodes_of_cluster
from assistant.errors import NightshiftError
from assistant.records import Action, Category, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.services import configured_texts
from assistant.recover.situation import AVOIDED, NOWHERE
from assistant.untrusted import reading_as
from assistant.watch.attempts import Remark
from assistant.watch.outages import ENDED_BY_ITSELF, MOST_CHARACTERS, awaited_by

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["HostFault", "host_fault", "hosts_of", "names_unresolved", "with_unreached_host"]

MOST_HOSTS, MOST_OWN, MOST_OTHERS = 3, 4, 2
"""Hosts that are asked about; nodes of the job, and others, that are asked."""
UNRESOLVED = re.compile(
    r"Temporary failure in name resolution|Name or service not known|nodename nor servname|No address associated with hostname"
    r"|gai error: -?\d|NameResolutionError|getaddrinfo failed|Could not resolve host|Failed to resolve '|EAI_AGAIN|dns error"
    r"|no such host|NXDOMAIN|SERVFAIL|DNS resolution failed|[Uu]nable to resolve host|errors resolving",
)
UNREACHED = re.compile(r"No route to host|Network is unreachable|Connection refused|Errno 11[013]\b|[Cc]onnect(?:ion)? timed out")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})"
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,8}}"
_IN_LINES = (
    re.compile(rf"Failed to resolve '({_HOST})'"),
    re.compile(rf"[Cc]ould not resolve host(?:name)?:? '?({_HOST})"),
    re.compile(rf"[Uu]nable to resolve host(?:name)? '?({_HOST})"),
    re.compile(rf"\blookup ({_HOST}) on "),
    re.compile(rf"\baddresses of \(({_HOST}), \d{{1,5}}\)"),
    re.compile(rf"\bhost='({_HOST})'"),
    re.compile(rf"(?:DNS resolution failed for|errors resolving) ({_HOST})"),
)
_IN_TEXTS = re.compile(rf"\b[a-z][a-z0-9+]{{1,8}}://(?:[^\s/'\"@]{{1,64}}@)?({_HOST})(?::\d{{1,5}})?(?=[/\s'\",;)\]}}]|$)")
_LETTER = re.compile(r"[A-Za-z]")


class HostFault(NamedTuple):
    """Where a host is out of reach."""

    nodes: tuple[str, ...]
    """The nodes at fault, while others reach it; empty where it is out of reach everywhere."""
    fine: tuple[str, ...]
    """The nodes that reach it."""


def names_unresolved(texts: Iterable[str]) -> bool:
    """Tell whether lines say that the name of a host did not resolve."""
    return any(UNRESOLVED.search(text[:MOST_CHARACTERS]) for text in texts)


def hosts_of(lines: Sequence[str], texts: Iterable[str]) -> tuple[str, ...]:
    """Return the hosts that lines name as not resolved; where they name none, those of URLs in what the job was submitted with.

    Addresses and the machine itself are left out.
    """
    in_lines = [match[1] for line in lines for form in _IN_LINES for match in form.finditer(line[:MOST_CHARACTERS])]
    hosts = in_lines or [match[1] for text in texts for match in _IN_TEXTS.finditer(text)]
    names = dict.fromkeys(host.lower() for host in hosts if _LETTER.search(host) and not host.lower().startswith("localhost"))
    return tuple(names)[:MOST_HOSTS]


def host_fault(answers: Mapping[str, bool | None], job_nodes: Sequence[str]) -> HostFault | None:
    """Return on which nodes a host is out of reach; None where it is not on any of the job, or that is not proven.

    Args:
        answers: By node whether it reaches the host; None where it could not tell.
        job_nodes: On which the job had failed.
    """
    failing = [node for node, answer in answers.items() if answer is False]
    fine = tuple(node for node, answer in answers.items() if answer)
    own = tuple(node for node in failing if node in job_nodes)
    if not own:
        return None
    if not fine:
        return HostFault((), ()) if len(failing) > len(own) else None
    return HostFault(own, fine) if len(failing) == len(own) else None


def with_unreached_host(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that says whether a host is out of reach of single nodes or of all; as it is where that is not proven.

    Of a node alone: the job restarts on others and people are told. Of all: it waits until the host can be resolved again.
    """
    if job is None or not job.nodes or not job.state.ended or diagnosis.reason in ENDED_BY_ITSELF or diagnosis.faulty_nodes:
        return diagnosis
    lines = [cited.text for cited in diagnosis.root_cause]
    by_name = names_unresolved(lines)
    if not by_name and not any(UNREACHED.search(line[:MOST_CHARACTERS]) for line in lines):
        return diagnosis
    try:
        with reading_as(job.account):
            texts = configured_texts(job) if by_name else []
    except (NightshiftError, OSError):
        return diagnosis
    awaited = awaited_by(diagnosis.reason, lines).cause
    hosts = hosts_of(lines, texts) if by_name else tuple(cause for cause in (awaited,) if ":" in cause and cause[0] != "/")
    first = next((place.node for place in diagnosis.where if place.node in job.nodes), job.nodes[0])
    own = list(dict.fromkeys([first, *job.nodes]))[:MOST_OWN]
    peers = comparable_nodes(nodes_of_cluster(engine), job, first, most=MOST_OWN)
    nodes = list(dict.fromkeys([*own, *[node for node in peers if node not in job.nodes][:MOST_OTHERS]]))
    for host in hosts:
        answer = ask(engine.store, engine.gate, incident, "host_compared", {"job": job.id, "host": host, "nodes": nodes}) or {}
        answers = answer.get("answers") or {}
        fault = host_fault({node: answers.get(node) for node in nodes}, job.nodes)
        if fault is not None and fault.nodes:
            return _elsewhere(engine, diagnosis, job, host, fault, by_name=by_name)
        if fault is not None and by_name and hosts_of(lines, ()):
            sentence = (
                f"{host} resolves on none of {', '.join(nodes)}: its name or the name service is at fault, and no single node."
            )
            places = diagnosis.where if awaited else (*diagnosis.where, Whereabouts(f"{NOWHERE} {host}"))
            return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", where=places)
    return diagnosis


def _elsewhere(engine: Engine, diagnosis: Diagnosis, job: Job, host: str, fault: HostFault, *, by_name: bool) -> Diagnosis:
    """Return a diagnosis by which a job starts again away from nodes that do not reach a host which others reach."""
    verb = "resolved" if by_name else "reached"
    nodes, fine = ", ".join(fault.nodes), ", ".join(fault.fine[:4])
    sentence = f"{host} cannot be {verb} on {nodes}, and can be on {fine}."
    todo = "its resolver (/etc/resolv.conf, /etc/hosts, nscd, systemd-resolved)" if by_name else "its routes and firewall"
    look = f"Somebody has to look at {todo} on {nodes}."
    remark = f"{sentence} Job {job.id} of {job.user} failed by that: {look[0].lower()}{look[1:-1]}, other jobs will meet it"
    engine.good_runs.remarks.append(Remark(f"{host} on {nodes}", remark))
    places = [Whereabouts(f"{AVOIDED} {host} cannot be {verb} there", node) for node in fault.nodes]
    advice = f"Restart from the last healthy checkpoint on other nodes than {nodes}: {sentence} {look}"
    return replace(
        diagnosis,
        category=Category.INFRASTRUCTURE,
        action=Action.RESTART_SAME_NODES,
        summary=f"{diagnosis.summary} {sentence}",
        advice=advice,
        where=(*diagnosis.where, *places),
    )
