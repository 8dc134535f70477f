"""Tell whether a service that a log names may be connected to: what the policy lists, and what the job's own configuration names.

A log is text of strangers: data that a job prints could name any host. A job's configuration is what it was submitted with, and
from its own nodes nothing is reached that the job itself could not reach.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from assistant.records import Job
from assistant.recover.job_program import FileReader, programs_of

__all__ = [
    "ConfiguredSource",
    "ServiceRight",
    "configured_sources",
    "configured_texts",
    "fixed_lines",
    "read_by_script",
    "service_right",
]

WEB_PORTS = frozenset({"80", "443"})
"""Ports that a URL need not name."""
MOST_READ = 8
_READ_BY_SCRIPT = re.compile(r"\$\((?:cat\s|<)\s*[\"']?([\w./-]{1,255})[\"']?\s*\)")
"""A small file that a script puts into its command: `--url $(cat server.txt)`."""
MOST_CHARACTERS = 1 << 20
"""Of one text of a job's configuration."""


@dataclass(frozen=True, slots=True)
class ConfiguredSource:
    """One text of what a job was submitted with."""

    place: str
    """Its path, or which part of the job it is, for people."""
    text: str
    read_at_start: bool = False
    """Whether it is a small file that the script puts into its commands each time that it starts."""


class ServiceRight(StrEnum):
    """By what a service may be connected to."""

    POLICY = "policy"
    """From anywhere."""
    JOB = "job"
    """From the nodes of the job alone: it could do so itself."""
    NONE = "none"


def configured_texts(job: Job) -> list[str]:
    """Return what a job was submitted with: script, arguments, variables, and the sources and configurations that it reads.

    Raises:
        Unavailable: The storage did not answer.
    """
    return [source.text for source in configured_sources(job)]


def configured_sources(job: Job) -> list[ConfiguredSource]:
    """Return the texts of `configured_texts`, each with the place where it stands.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job.spec is None:
        return []
    reader = FileReader(job.account)
    programs_of(job, reader)
    environment = "\n".join(f"{name}={value}" for name, value in job.spec.environment.items())
    read_at_start = read_by_script(job)
    for path in read_at_start:
        reader(str(path))
    sources = [
        ConfiguredSource("its script", job.spec.script),
        ConfiguredSource("the arguments of its script", " ".join(job.spec.arguments)),
        ConfiguredSource("its environment", environment),
    ]
    sources += [
        ConfiguredSource(path, text, read_at_start=Path(path) in read_at_start) for path, text in reader.texts.items() if text
    ]
    return [replace(source, text=source.text[:MOST_CHARACTERS]) for source in sources if source.text]


def read_by_script(job: Job) -> list[Path]:
    """Return the small files that the script of a job puts into its commands when it starts, `$(cat server.txt)`."""
    if job.spec is None:
        return []
    names = dict.fromkeys(_READ_BY_SCRIPT.findall(job.spec.script))
    return [(job.work_dir or Path("/")) / name for name in list(names)[:MOST_READ]]


def fixed_lines(sources: Iterable[ConfiguredSource], host: str, port: str) -> list[tuple[str, str]]:
    """Return where a job's configuration names an address as fixed text, and the line; what its script reads at each start is none.

    Args:
        sources: From `configured_sources`.
        host: Of the address.
        port: Of the address.
    """
    address = re.compile(rf"(?<![\w.-]){re.escape(host)}(?:\.[\w.-]{{1,200}})?:{re.escape(port)}(?!\d)", re.IGNORECASE)
    return [
        (f"line {number} of {source.place}", line.strip())
        for source in sources
        if not source.read_at_start
        for number, line in enumerate(source.text.splitlines(), 1)
        if address.search(line) and (not line.lstrip().startswith("#") or line.lstrip().startswith("#SBATCH"))
    ]


def service_right(host: str, port: str, *, listed: Sequence[str], configured: Iterable[str]) -> ServiceRight:
    """Return by what a service may be connected to.

    Args:
        host: Name or address, in lower case.
        port: Its number; empty where nobody knows it, and then nothing is connected to.
        listed: The policy's `services`: `HOST` for its web ports, or `HOST:PORT`; `*` stands for any part of a name.
        configured: From `configured_texts`. One of them has to name the host as a whole word, and a port that no URL may leave out.
    """
    if _is_own(host):
        return ServiceRight.NONE
    for entry in listed:
        name, _, number = entry.lower().partition(":")
        if fnmatchcase(host, name) and (port == number if number else port in WEB_PORTS):
            return ServiceRight.POLICY
    word = re.compile(rf"(?<![\w.-]){re.escape(host)}(?![\w-]|\.\w)", re.IGNORECASE)
    number_word = re.compile(rf"(?<![\d.]){re.escape(port)}(?![\d.])") if port and port not in WEB_PORTS else None
    for text in configured:
        if word.search(text) and (number_word is None or number_word.search(text)):
            return ServiceRight.JOB
    return ServiceRight.NONE


def _is_own(host: str) -> bool:
    """Tell whether an address is never a service of others: of the machine itself, of its link (metadata of clouds), of many."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost") or not host.strip("0123456789.xabcdef")
    return address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
