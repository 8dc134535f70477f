"""Tell one outage from several failures: jobs of different tasks that died of the same service within minutes.

Pure. The service is read off the lines that prove each failure: a URL's host, a bucket, a mount, an address with a port. Failures
that name no service, or each another one, stay apart; so do those of one task alone, which may have been told a wrong address.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

SHARED_REASONS = frozenset(
    {"s3_storage_error", "connection_error", "os_error", "network_error", "model_loading_error", "dataset_loading_error"}
)
"""Reasons that may lie in a service which many jobs use."""
WINDOW = timedelta(minutes=15)
"""From one failure to the next of the same outage: clients retry for minutes before they give up."""
FEWEST_JOBS = 3
FEWEST_TASKS = 2

_URL = re.compile(r"\b(?:https?|s3|gs|tcp|nfs|ssh)://([^\s/'\":,)\]]+(?::\d+)?)", re.IGNORECASE)
_HOST_WORD = re.compile(
    r"\bhost='([^']+)'|(?:connect(?:ion)? to|resolve host|reach)[: ]+\[?([\w-]+(?:\.[\w-]+)+(?::\d+)?)", re.IGNORECASE
)
_ADDRESS = re.compile(r"\b(\d{1,3}(?:\.\d{1,3}){3}:\d{1,5})\b")
_S3_CODE = re.compile(r"\((SlowDown|ServiceUnavailable|InternalError|RequestTimeout|503)\)")
_MOUNT = re.compile(r"(?<![\w.])(/(?:lustre|gpfs|nfs|mnt|scratch|fsx|beegfs|data|shared|work|home|ckpt)(?:/[\w.-]+)?)(?=/|\b)")


@dataclass(frozen=True, slots=True)
class Failure:
    """One job that failed, as far as an outage is concerned."""

    incident: int
    job: str
    task: str
    """User and name without run numbers: runs of one task fail together for reasons of their own."""
    at: datetime
    reason: str
    texts: tuple[str, ...]
    """Lines that prove it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A service that failed for several jobs."""

    service: str
    since: datetime
    until: datetime
    """The last failure of it."""
    members: tuple[Failure, ...]
    """In order of their incidents."""


def service_of(reason: str, texts: Sequence[str]) -> str:
    """Return the name of the service that lines speak of; empty where they name none."""
    if reason not in SHARED_REASONS:
        return ""
    text = "\n".join(texts)
    for pattern in (_URL, _HOST_WORD, _ADDRESS):
        if match := pattern.search(text):
            return str(next(filter(None, match.groups()))).lower()
    if reason == "s3_storage_error" and _S3_CODE.search(text):
        return "object storage"
    match = _MOUNT.search(text) if reason in ("os_error", "s3_storage_error") else None
    return str(match[1]) if match else ""


def outages(failures: Sequence[Failure]) -> list[Outage]:
    """Return the outages among failures, the oldest first; what belongs to none is left out.

    Args:
        failures: Of any time and order; a job counts once for a service.
    """
    by_service: dict[str, list[Failure]] = {}
    for one in sorted(failures, key=lambda one: (one.at, one.incident)):
        service = service_of(one.reason, one.texts)
        if service:
            by_service.setdefault(service, []).append(one)
    found: list[Outage] = []
    for service, those in by_service.items():
        run: list[Failure] = []
        ends: list[Failure | None] = [*those, None]
        for failure in ends:
            if failure is not None and (not run or failure.at - run[-1].at <= WINDOW):
                run.append(failure)
                continue
            found += _outage(service, run)
            run = [failure] if failure is not None else []
    return sorted(found, key=lambda one: (one.since, one.service))


def _outage(service: str, run: Sequence[Failure]) -> list[Outage]:
    members = {failure.job: failure for failure in reversed(run)}
    if len(members) < FEWEST_JOBS or len({failure.task for failure in run}) < FEWEST_TASKS:
        return []
    ordered = tuple(sorted(members.values(), key=lambda one: one.incident))
    return [Outage(service, run[0].at, run[-1].at, ordered)]
