"""A job that asks a server at an address where it has ended: it waits for the server, restarts, or its owner has to change a line.

While the server comes back its client is left alone. Once it serves elsewhere it counts from where the client has the address: a
client that reads it again goes on by itself; one whose script reads it at the start from a file that names the new one by now is
started again, once, from its newest checkpoint; where the old one is fixed text nothing but its owner's change helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assistant.engine.evidence.ended_servers import log_of_server
from assistant.engine.evidence.own_servers import own_commands
from assistant.engine.evidence.remote_hosts import Address, addresses_in
from assistant.engine.intake import UNPROVEN
from assistant.engine.outcomes.moved_servers import MovedServer, ServerState, listening_address, moved_server
from assistant.engine.retry_policy import ASKS_OLD_ADDRESS, working_hang
from assistant.errors import NightshiftError, Unavailable
from assistant.records import Diagnosis, EventKind, Incident, Job, JobState
from assistant.recover.joblog import log_lines
from assistant.recover.services import ConfiguredSource, configured_sources, fixed_lines, read_by_script
from assistant.recover.verify import Standing, Verdict
from assistant.redact import head_of
from assistant.untrusted import LOOK_S, read_start, reading_as, status_of, within
from assistant.watch.hang import WAITS
from assistant.watch.outages import ENDED_BY_ITSELF, awaited_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assistant.engine.ports import EnginePort

PATIENCE = timedelta(hours=2)
"""For how long a client waits for its server to come back before a person is told that it does not."""
UNANSWERED_FOR = timedelta(minutes=10)
"""For how long a client is left alone while scheduler or file system do not answer what became of its server."""
SETTLED_FOR = timedelta(seconds=30)
"""For so long a client must have asked the old address beside the new one: one that reads it again has it by then."""
ADDRESS_BYTES = 1024
LINE_SHOWN = 160


class ClientTurn(NamedTuple):
    """How the job of an incident that lost its server is treated in this pass; empty where none of this is proven."""

    waits: str = ""
    """Why it is left alone for now."""
    over: str = ""
    """What a person has to do."""
    restarts: bool = False
    """Whether only a restart lets it ask the server where that is."""


class AddressFile(NamedTuple):
    """A small file that names the new address alone."""

    path: Path
    changed: datetime


def client_turn(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> ClientTurn:
    """Return how a job is treated that lost its server; nothing is changed by asking."""
    if job is None or engine.replays or incident.kind not in (EventKind.HANG, EventKind.JOB_ENDED):
        return ClientTurn()
    if job.attempt != incident.attempt or (not job.state.ended and incident.kind is not EventKind.HANG):
        return ClientTurn()
    if waits := working_hang(engine.store, incident, diagnosis, job, engine.clock.now()):
        return ClientTurn(waits)
    try:
        old_address = asked_address(engine, incident, diagnosis, job)
        moved = moved_server(engine, job, old_address) if old_address is not None else None
        turn = _turn_of(engine, incident, job, moved) if moved is not None else ClientTurn()
    except Unavailable as error:
        # nobody answered what became of the server: that is no proof that none was there
        is_early = not job.state.ended and engine.clock.now() - incident.opened < UNANSWERED_FOR
        return ClientTurn(waits=f"for what job {job.id} waits cannot be asked now: {error}") if is_early else ClientTurn()
    except (NightshiftError, OSError):
        return ClientTurn()
    if turn.over and not job.state.ended:
        engine.store.mark_stage(incident.id, UNPROVEN)  # the watch goes on looking whether it hangs
    return turn


def with_lost_server(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a living job that waits for a server with what became of that; any other as it is."""
    if job is None or job.state.ended or incident.kind is not EventKind.HANG or job.attempt != incident.attempt:
        return diagnosis
    try:
        old_address = asked_address(engine, incident, diagnosis, job)
        moved = moved_server(engine, job, old_address) if old_address is not None else None
    except (NightshiftError, OSError):
        return diagnosis
    if moved is None:
        return diagnosis
    advice = f"See that the server comes back: {moved.sentence}. What job {job.id} then needs is told in its incident."
    return replace(diagnosis, summary=f"{diagnosis.summary} {moved.sentence}.", advice=advice)


def asked_address(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job) -> Address | None:
    """Return the address that a job asks in vain: by the lines of its failure, or the newest words of one that lives."""
    if job.state.ended:
        if diagnosis.reason in ENDED_BY_ITSELF:
            return None
        cause = awaited_by(diagnosis.reason, [cited.text for cited in diagnosis.root_cause]).cause
        host, colon, port = cause.rpartition(":")
        return Address(host, port, cause) if colon and port.isdecimal() and not cause.startswith("/") else None
    line = _wait_line(engine, incident, job)
    hosts = [node.name for node in engine.scheduler.nodes()]
    addresses = addresses_in(line, hosts) if line else []
    if not addresses and line:
        with reading_as(job.account):
            addresses = [address for entry in log_lines(job) for address in addresses_in(entry.text, hosts)][-1:]
    alone = bool(addresses) and all(address.is_same(addresses[0]) for address in addresses)
    if not alone or own_commands(job if job.spec is not None else engine.scheduler.job(job.id), addresses[0]):
        return None  # what it starts itself was at the same address in an earlier run of it, too
    return addresses[0]


def _wait_line(engine: EnginePort, incident: Incident, job: Job) -> str:
    """Return the newest line by which a living job says that it waits; empty where it does not."""
    event = next((entry for entry in reversed(engine.store.events(incident.id)) if entry.detail.get(WAITS)), None)
    if event is None:
        return ""
    view = engine.watcher.view(job.id, job.attempt)
    return view.wait.line if view is not None and view.wait.line else str(event.detail[WAITS])


def serves_again(engine: EnginePort, incident: Incident, job: Job) -> bool:
    """Tell whether a job of an incident and the one that took its place both say by their own logs that they listen."""
    before = _before(engine, incident)
    pair = (before, job) if before is not None else ()
    return bool(pair) and all(listening_address(log_of_server(server), server.nodes) is not None for server in pair)


def with_served_address(engine: EnginePort, incident: Incident, number: str, verdict: Verdict) -> Verdict:
    """Return the verdict on a server that was started again, with where it listens; it is not recovered before it does so again."""
    before = _before(engine, incident)
    if before is None or verdict.step is not None or verdict.standing is not Standing.RECOVERED:
        return verdict
    was_at = listening_address(log_of_server(before), before.nodes)
    if was_at is None or (job := engine.scheduler.job(number)).state is not JobState.RUNNING:
        return verdict
    address = listening_address(log_of_server(job), job.nodes)
    if address is None:
        awaited = f"job {job.id} is running again on {', '.join(job.nodes[:4])}; awaits that it says where it listens"
        return replace(verdict, standing=Standing.RUNNING_AGAIN, note=awaited, passed=False)
    place = f"job {job.id} is running again and listens on {address.host}:{address.port}"
    moved = "" if address.is_same(was_at) else f" and no more on {was_at.host}:{was_at.port}"
    return replace(verdict, note=f"{place}{moved}; it makes no steps, so more than that cannot be seen")


def _before(engine: EnginePort, incident: Incident) -> Job | None:
    try:
        return engine.scheduler.job(incident.job) if incident.job is not None else None
    except NightshiftError:
        return None


def _turn_of(engine: EnginePort, incident: Incident, job: Job, moved: MovedServer) -> ClientTurn:
    waited = engine.clock.now() - incident.opened
    head = f"job {job.id} asks {moved.old_address.text}; {moved.sentence}"
    if moved.state is ServerState.ABANDONED:
        return ClientTurn() if job.state.ended else ClientTurn(over=f"{head}. {_abandoned(job, moved)}")
    if moved.state is ServerState.COMES_BACK:
        if waited >= PATIENCE:
            return ClientTurn(
                over=f"{head}. It has not come back for {waited // timedelta(minutes=1)} min. {_abandoned(job, moved)}"
            )
        return ClientTurn(waits=f"{head}. Job {job.id} waits for it")
    if not moved.is_elsewhere or moved.address is None:
        # of an ended job the playbook itself asks whether it answers
        return (
            ClientTurn() if job.state.ended or waited >= PATIENCE else ClientTurn(waits=f"{head}: job {job.id} goes on by itself")
        )
    new = f"{moved.address.host}:{moved.address.port}"
    with reading_as(job.account):
        configured, file = within(LOOK_S, lambda: _configuration(engine, job, moved), f"the configuration of job {job.id}")
    if fixed := fixed_lines(configured, moved.old_address.host, moved.old_address.port):
        return ClientTurn(over=f"{head}. {_owners_change(job, fixed, moved, new)}")
    if file is None:
        return _unknown_way(job, head, new, waited)
    if problem := _silence(engine, incident, job, new):
        return ClientTurn(waits=f"{head}. {file.path} names {new}, and {problem}") if waited < PATIENCE else ClientTurn()
    if job.state.ended:
        return ClientTurn(restarts=True)
    if not _asks_old_still(engine, incident, job, moved, file):
        return ClientTurn(waits=f"{head}. {file.path} names {new}; job {job.id} goes on by itself if it reads that again")
    engine.store.mark_stage(incident.id, ASKS_OLD_ADDRESS)
    return ClientTurn(restarts=True)


def _abandoned(job: Job, moved: MovedServer) -> str:
    end = f" If nobody does, end job {job.id}: scancel {job.id}" if not job.state.ended else ""
    return (
        f"Somebody has to start that server again (job {moved.server.id} of {moved.server.user}). Nothing was done to job {job.id}."
        f"{end}"
    )


def _unknown_way(job: Job, head: str, new: str, waited: timedelta) -> ClientTurn:
    if job.state.ended:
        return ClientTurn()
    if waited < PATIENCE:
        return ClientTurn(
            waits=f"{head}. From where job {job.id} has its address is not known; it goes on by itself if it asks {new}"
        )
    return ClientTurn(over=f"{head}. It does not ask {new} by itself: end job {job.id} and start it with that address")


def _owners_change(job: Job, fixed: Sequence[tuple[str, str]], moved: MovedServer, new: str) -> str:
    """Return which lines an owner has to change, and what then."""
    old = f"{moved.old_address.host}:{moved.old_address.port}"
    lines = "; ".join(f"{place}: {head_of(line, LINE_SHOWN)}" for place, line in fixed[:3])
    state = "and was not started again" if job.state.ended else "and was left running: it waits for ever"
    end = "" if job.state.ended else f"scancel {job.id}, then "
    return (
        f"Job {job.id} names the old address as fixed text ({lines}), {state}. Its owner {job.user} has to write {new} for {old} "
        f"there, and then: {end}submit it again, from its newest checkpoint"
    )


def _configuration(engine: EnginePort, job: Job, moved: MovedServer) -> tuple[list[ConfiguredSource], AddressFile | None]:
    """Return what a job was submitted with, and the file read at its start that names the new address and no other."""
    full = job if job.spec is not None else engine.scheduler.job(job.id)
    hosts = [node.name for node in engine.scheduler.nodes()]
    files = []
    for path in read_by_script(full):
        try:
            text = read_start(path, ADDRESS_BYTES).decode("utf-8", "replace")
            changed = datetime.fromtimestamp(status_of(path).st_mtime, UTC)
        except (NightshiftError, OSError):
            continue
        addresses = addresses_in(text, hosts)
        if addresses and moved.address is not None and all(address.is_same(moved.address) for address in addresses):
            files.append(AddressFile(path, changed))
    return configured_sources(full), files[0] if len(files) == 1 else None


def _silence(engine: EnginePort, incident: Incident, job: Job, new: str) -> str:
    """Return why a restart would meet no server at its new address; empty where it answers on the client's node."""
    arguments = {"job": job.id, "host": new, "nodes": list(job.nodes[:1])}
    why = f"whether job {job.id} would reach its server at {new}"
    try:
        outcome = engine.gate.call("host_compared", arguments, why=why, by="engine", incident=incident.id)
    except NightshiftError as error:
        return f"whether that answers cannot be asked now: {error}"
    value: Mapping[str, object] = outcome.value if outcome.ok and isinstance(outcome.value, dict) else {}
    answers, texts = value.get("answers"), value.get("texts")
    if isinstance(answers, dict) and any(answers.values()):
        return ""
    words = "; ".join(map(str, texts.values())) if isinstance(texts, dict) and texts else str(value.get("note") or outcome.error)
    return f"that does not answer yet: {words}"


def _asks_old_still(engine: EnginePort, incident: Incident, job: Job, moved: MovedServer, file: AddressFile) -> bool:
    """Tell whether a living job was seen to ask the old address a while behind the change of the file, by its own newest words."""
    view = engine.watcher.view(job.id, job.attempt)
    if view is None or view.wait.last_at is None or job.state is not JobState.RUNNING or job.started is None:
        return False
    if not job.started < file.changed <= view.wait.last_at - SETTLED_FOR:
        return False
    hosts = [node.name for node in engine.scheduler.nodes()]
    newest = addresses_in(_wait_line(engine, incident, job), hosts)
    return bool(newest) and all(address.is_same(moved.old_address) for address in newest)
