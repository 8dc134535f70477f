"""Where a server is now that a job asks at an old address, and what that means for the job: proven by logs and files alone."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assistant.engine.evidence.remote_hosts import Address
from assistant.engine.outcomes.job_processes import RAN_ON
from assistant.engine.outcomes.moved_servers import ServerState, listening_address, moved_server
from assistant.engine.outcomes.requeues import REQUEUE
from assistant.engine.outcomes.waiting_clients import ClientTurn, client_turn
from assistant.errors import Unavailable
from assistant.records import Event, EventKind, Incident, IncidentState, Job, JobSpec, JobState, Node, NodeState
from assistant.recover.services import configured_sources, fixed_lines
from assistant.watch.attempts import wait_limit_s
from assistant.watch.hang import WAITS, HangLimits
from tests.unit.test_ended_servers import LOST, job

OLD, NEW = "node07:8000", "node03:8123"
WAITS_FOR = f"reward server http://{OLD} does not answer; retrying in 1s"
ASKED = Address("node07", "8000", f"http://{OLD}")


def serving(number: str, folder: Path, address: str, *, nodes: tuple[str, ...], **changes: Any) -> Job:
    return job(number, folder, log=f"model loaded, listening on http://{address}\n", nodes=nodes, work_dir=folder, **changes)


class Cluster(SimpleNamespace):
    """An engine that knows jobs and one incident, and whose nodes answer or do not."""

    @classmethod
    def of(cls, *jobs: Job, incident: Any = None, calls: tuple[Any, ...] = (), answers: bool = True, line: str = WAITS_FOR) -> Any:
        names = ("node03", "node07", "node09")
        event = Event(EventKind.HANG, "9", None, LOST, {WAITS: line})
        stages: list[str] = []
        store = SimpleNamespace(
            incidents=lambda **kwargs: [incident] if incident is not None and kwargs.get("job") == "8" else [],
            diagnosis=lambda _: None,
            calls=lambda _: list(calls),
            outcome=lambda number: SimpleNamespace(ok=True, value={"job": "10"}),
            events=lambda _: [event],
            mark_stage=lambda _, stage: stages.append(stage),
        )
        view = SimpleNamespace(wait=SimpleNamespace(line=line, last_at=LOST))
        value = {"answers": {"node09": answers}, "texts": {"node09": "Connection refused"}, "note": ""}
        return cls(
            watcher=SimpleNamespace(jobs=jobs, view=lambda *_: view),
            scheduler=SimpleNamespace(
                nodes=lambda: [Node(name, NodeState.IDLE) for name in names],
                job=lambda number: next(j for j in jobs if j.id == number),
            ),
            store=store,
            stages=stages,
            clock=SimpleNamespace(now=lambda: LOST),
            gate=SimpleNamespace(call=lambda *_, **__: SimpleNamespace(ok=True, value=value, error="")),
            replays=False,
        )


def server(folder: Path, **changes: Any) -> Job:
    usual: dict[str, Any] = {"nodes": ("node07",), "ended": -timedelta(minutes=9)}
    return serving("8", folder, OLD, **usual | changes)


def successor(folder: Path, address: str = NEW, **changes: Any) -> Job:
    usual: dict[str, Any] = {"nodes": ("node03",), "ended": None, "name": "name-8", "submitted": LOST - timedelta(minutes=8)}
    return serving("10", folder, address, **usual | changes)


def client(folder: Path, script: str, **changes: Any) -> Job:
    made = job("9", folder, ended=None, log=WAITS_FOR, nodes=("node09",))
    return replace(made, spec=JobSpec("ppo", script, work_dir=folder), work_dir=folder, **changes)


def written(folder: Path, text: str, before: timedelta = timedelta(minutes=5)) -> None:
    (folder / "url.txt").write_text(text)
    os.utime(folder / "url.txt", ((LOST - before).timestamp(),) * 2)


def about(state: IncidentState, note: str = "why") -> Any:
    return SimpleNamespace(id=4, job="8", state=state, note=note)


def turn(engine: Any, of: Job) -> ClientTurn:
    incident = SimpleNamespace(id=5, job="9", kind=EventKind.HANG, attempt=0, opened=LOST - timedelta(minutes=1))
    return client_turn(engine, cast("Incident", incident), cast("Any", SimpleNamespace(reason="connection_error")), of)


READS = 'URL="$(cat url.txt)"\npython ppo.py --server "$URL"\n'
FIXED = f"#!/bin/bash\n# was http://{OLD}\nexport SERVER_URL=http://{OLD}\npython ppo.py\n"


@pytest.mark.parametrize(
    ("lines", "nodes", "address"),
    [
        (["Uvicorn running on http://0.0.0.0:8123 (Press CTRL+C to quit)"], ("node03",), NEW),
        (["listening on http://node03.cluster:8123"], ("node03",), "node03.cluster:8123"),
        (["Serving at http://10.0.0.3:8123, ready on port 8123"], ("node03",), NEW),
        (["reward server ready on port 8123"], ("node03",), NEW),
        (["Uvicorn running on http://0.0.0.0:8123"], ("node03", "node04"), ""),
        (["listening on http://node04:8123"], ("node03",), ""),
        (["listening on http://localhost:8123"], ("node03",), ""),
        (["listening on 0.0.0.0:8123", "listening on 0.0.0.0:9000"], ("node03",), ""),
        (["Prometheus metrics serving on 0.0.0.0:8123"], ("node03",), ""),
        (["step 3 loss 8123"], ("node03",), ""),
    ],
)
def test_a_server_is_where_the_scheduler_has_it_on_the_port_that_its_log_says(
    lines: list[str], nodes: tuple[str, ...], address: str
) -> None:
    place = listening_address(lines, nodes)
    assert (f"{place.host}:{place.port}" if place is not None else "") == address


def test_a_server_that_nightshift_started_again_is_followed_to_its_new_address(tmp_path: Path) -> None:
    calls = (SimpleNamespace(id=1, tool="resubmit_job"),)
    waiting = client(tmp_path, READS)
    jobs = (waiting, server(tmp_path), successor(tmp_path, name="another"))
    moved = moved_server(Cluster.of(*jobs, incident=about(IncidentState.RECOVERED), calls=calls), waiting, ASKED)
    assert moved is not None
    assert (moved.state, moved.is_elsewhere) == (ServerState.SERVES, True)
    assert moved.sentence.endswith("540 s before; it was started again as job 10 on node03, which listens on node03:8123")


@pytest.mark.parametrize(
    ("changes", "incident", "state", "words"),
    [
        ({}, about(IncidentState.RECOVERING, "playbook"), ServerState.COMES_BACK, "incident 4 is about it (recovering: playbook)"),
        ({}, about(IncidentState.ESCALATED), ServerState.ABANDONED, "incident 4 was handed to a person: why"),
        (
            {"state": JobState.CANCELLED, "ended_by": "lee"},
            None,
            ServerState.ABANDONED,
            "cancelled by lee, so it is not started again",
        ),
        ({}, None, ServerState.ABANDONED, "nothing was done about it"),
    ],
    ids=["under way", "a person's", "cancelled", "nobody's"],
)
def test_without_a_successor_it_is_said_what_was_done(
    changes: dict[str, Any], incident: Any, state: ServerState, words: str, tmp_path: Path
) -> None:
    waiting = client(tmp_path, READS)
    moved = moved_server(Cluster.of(waiting, server(tmp_path, **changes), incident=incident), waiting, ASKED)
    assert moved is not None
    assert (moved.state, words in moved.sentence) == (state, True), moved.sentence


def test_of_two_later_jobs_of_that_name_none_is_its_successor(tmp_path: Path) -> None:
    waiting = client(tmp_path, READS)
    twins = [successor(tmp_path), replace(successor(tmp_path), id="11")]
    moved = moved_server(Cluster.of(waiting, server(tmp_path), *twins), waiting, ASKED)
    assert moved is not None
    assert moved.successor is None


def test_a_client_restarts_only_where_its_file_names_the_new_address_and_it_still_asks_the_old_one(tmp_path: Path) -> None:
    waiting = client(tmp_path, READS)
    jobs = (waiting, server(tmp_path), successor(tmp_path))
    written(tmp_path, f"http://{NEW}\n")
    assert turn(Cluster.of(*jobs), waiting).restarts
    assert "does not answer yet: Connection refused" in turn(Cluster.of(*jobs, answers=False), waiting).waits
    again = turn(Cluster.of(*jobs, line=WAITS_FOR.replace("retrying", "node03:9000 retrying")), waiting)
    assert again == ClientTurn()  # two addresses: which one it waits for is not known
    written(tmp_path, f"http://{NEW}\n", before=timedelta(seconds=9))
    assert "goes on by itself if it reads that again" in turn(Cluster.of(*jobs), waiting).waits
    written(tmp_path, "http://node09:8001\n")  # another server's
    assert not turn(Cluster.of(*jobs), waiting).restarts


def test_fixed_text_is_named_with_its_line_and_the_new_value_and_nothing_is_restarted(tmp_path: Path) -> None:
    waiting = client(tmp_path, FIXED)
    written(tmp_path, f"http://{NEW}\n")
    over = turn(Cluster.of(waiting, server(tmp_path), successor(tmp_path)), waiting).over
    assert f"(line 3 of its script: export SERVER_URL=http://{OLD})" in over
    assert f"has to write {NEW} for {OLD} there, and then: scancel 9, then submit it again" in over


def test_at_the_same_address_it_goes_on_by_itself(tmp_path: Path) -> None:
    waiting = client(tmp_path, FIXED)
    jobs = (waiting, server(tmp_path), successor(tmp_path, OLD, nodes=("node07",)))
    assert "job 9 goes on by itself" in turn(Cluster.of(*jobs), waiting).waits


def test_a_server_that_nobody_starts_again_is_a_persons(tmp_path: Path) -> None:
    waiting = client(tmp_path, READS)
    over = turn(Cluster.of(waiting, server(tmp_path, state=JobState.CANCELLED)), waiting).over
    assert "it was cancelled, so it is not started again. Somebody has to start that server again (job 8 of kim)" in over


def test_what_the_script_reads_at_its_start_is_no_fixed_text(tmp_path: Path) -> None:
    written(tmp_path, f"http://{OLD}\n")
    sources = configured_sources(client(tmp_path, READS))
    assert fixed_lines(sources, "node07", "8000") == []
    sources = configured_sources(client(tmp_path, "python ppo.py --server node07.cluster:8000 --log node07:80001\n"))
    assert [place for place, _ in fixed_lines(sources, "node07", "8000")] == ["line 1 of its script"]


def test_a_wait_for_the_node_of_a_job_that_ended_since_is_told_of_soon(tmp_path: Path) -> None:
    limits = HangLimits(1800.0, 5.0)
    waiting, gone = client(tmp_path, READS), server(tmp_path)
    assert wait_limit_s(waiting, WAITS_FOR, [waiting, gone], limits) == limits.floor_s
    for spared in (replace(gone, user="lee"), replace(gone, ended=None), replace(gone, nodes=("node03",))):
        assert wait_limit_s(waiting, WAITS_FOR, [waiting, spared], limits) == limits.silent_s


def test_a_scheduler_that_does_not_answer_is_asked_again_before_the_client_is_a_persons(tmp_path: Path) -> None:
    def silent() -> list[Node]:
        raise Unavailable("sinfo did not answer within 20 s")

    waiting = client(tmp_path, READS)
    engine = Cluster.of(waiting, server(tmp_path), successor(tmp_path))
    engine.scheduler.nodes = silent
    assert "sinfo did not answer within 20 s" in turn(engine, waiting).waits
    engine.clock = SimpleNamespace(now=lambda: LOST + timedelta(minutes=10))
    assert turn(engine, waiting) == ClientTurn()


@pytest.mark.parametrize(("minutes_before", "server_id"), [(5, "12"), (20, "8")])
def test_of_an_ended_and_a_requeued_server_the_last_at_the_address_counts(
    minutes_before: int, server_id: str, tmp_path: Path
) -> None:
    waiting = replace(client(tmp_path, READS), started=LOST - timedelta(minutes=25))
    requeued = serving("12", tmp_path, OLD, nodes=("node07",), ended=None, attempt=1)
    engine = Cluster.of(waiting, server(tmp_path), requeued)
    ended = LOST - timedelta(minutes=minutes_before)
    record = SimpleNamespace(source=REQUEUE, facts={"ended": ended.isoformat(), RAN_ON: ["node07"], "cause": "Slurm"})
    engine.store.incidents = lambda **kwargs: [SimpleNamespace(id=6)] if kwargs.get("job") == "12" else []
    engine.store.evidence = lambda _: [record]
    moved = moved_server(engine, waiting, ASKED)
    assert moved is not None
    assert moved.server.id == server_id
