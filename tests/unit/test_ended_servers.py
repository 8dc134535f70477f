"""The job whose service another job lost is named where its own log proves that it listened there, and no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assistant.engine.evidence.ended_servers import served_address, with_ended_server
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Incident, Job, JobSpec, JobState, Node, NodeState
from assistant.recover.services import configured_texts

LOST = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
REFUSED = "POST http://node07:8000/score failed, attempt 4: [Errno 111] Connection refused"
LISTENS = "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)\n"


def job(
    number: str, folder: Path, *, user: str = "kim", ended: timedelta | None = timedelta(0), log: str = "", **changes: Any
) -> Job:
    path = folder / f"{number}.out"
    path.write_text(log)
    over = LOST + ended if ended is not None else None
    state = JobState.FAILED if over is not None else JobState.RUNNING
    begun = LOST - timedelta(hours=2)
    plain = Job(number, f"name-{number}", user, state, "train", ("node03",), path, folder, begun, begun, over, 1, None)
    return replace(plain, **changes)


def diagnosed(engine: Any, client: Job, line: str = REFUSED) -> Diagnosis:
    cited = Citation("job.log", 9, line, "retries used up: node07:8000")
    plain = Diagnosis(
        reason="connection_error",
        category=Category.INFRASTRUCTURE,
        action=Action.RESTART_SAME_NODES,
        confidence=0.9,
        by=DecidedBy.RULE,
        root_cause=(cited,),
        nodes=(),
        rivals=(),
        summary="Connection error.",
        advice="Restart it.",
    )
    return with_ended_server(engine, cast("Incident", SimpleNamespace(id=1)), plain, client)


def cluster(*jobs: Job, down: str = "") -> Any:
    names = ("node03", "node07")
    nodes = [Node(name, NodeState.DOWN if name == down else NodeState.IDLE) for name in names]
    return SimpleNamespace(watcher=SimpleNamespace(jobs=jobs), scheduler=SimpleNamespace(nodes=lambda: nodes))


def test_the_job_that_listened_there_and_has_ended_is_named_with_its_owner_and_end(tmp_path: Path) -> None:
    client = job("9", tmp_path)
    server = job("8", tmp_path, user="lee", ended=-timedelta(seconds=11), log=LISTENS, nodes=("node07",), state=JobState.TIMEOUT)
    told = diagnosed(cluster(client, server), client)
    assert (
        "node07:8000 was served by job 8 (name-8) of lee on node07, which ended (timeout) at 11:59:49 UTC, 11 s before."
        in told.summary
    )
    assert told.advice.startswith("node07:8000 was served by job 8")
    assert "job 8 of lee has to come back" in told.advice
    assert (told.action, told.reason) == (Action.RESTART_SAME_NODES, "connection_error")


def test_a_server_behind_many_earlier_jobs_of_its_node_is_named(tmp_path: Path) -> None:
    client = job("999", tmp_path)
    earlier = [job(str(number), tmp_path, ended=-timedelta(minutes=29), nodes=("node07",)) for number in range(100, 200)]
    server = job("998", tmp_path, ended=-timedelta(seconds=11), log=LISTENS, nodes=("node07",))
    assert "node07:8000 was served by job 998" in diagnosed(cluster(*earlier, client, server), client).summary


def test_a_server_on_a_node_that_is_down_is_named_while_the_scheduler_still_calls_it_running(tmp_path: Path) -> None:
    client = job("9", tmp_path)
    server = job("8", tmp_path, ended=None, log="Serving at 10.0.0.7:8000, listening on 10.0.0.7:8000\n", nodes=("node07",))
    told = diagnosed(cluster(client, server, down="node07"), client, REFUSED.replace("node07", "10.0.0.7"))
    assert "10.0.0.7:8000 was served by job 8 (name-8) of kim on node07; node07 is down." in told.summary


@pytest.mark.parametrize(
    "changes",
    [
        {"log": LISTENS.replace("8000", "8001")},  # another port
        {"log": LISTENS, "nodes": ("node05",)},  # another node
        {"log": "step 3 loss 8000\n"},  # it serves nothing
        {"log": LISTENS, "ended": -timedelta(hours=1)},  # long gone
        {"log": LISTENS, "ended": None},  # it lives, on a node that is well
    ],
    ids=["port", "node", "no server", "long gone", "lives"],
)
def test_who_cannot_be_proven_to_have_listened_there_is_not_named(changes: dict[str, Any], tmp_path: Path) -> None:
    client = job("9", tmp_path)
    usual: dict[str, Any] = {"nodes": ("node07",), "ended": -timedelta(seconds=11)}
    server = job("8", tmp_path, **usual | changes)
    assert diagnosed(cluster(client, server), client).summary == "Connection error."


def test_of_two_that_may_have_listened_there_none_is_named(tmp_path: Path) -> None:
    client = job("9", tmp_path)
    servers = [job(number, tmp_path, log=LISTENS, ended=-timedelta(minutes=1), nodes=("node07",)) for number in ("7", "8")]
    assert diagnosed(cluster(client, *servers), client).summary == "Connection error."


def test_a_port_is_a_whole_number_and_a_host_a_whole_name() -> None:
    lines = ["Uvicorn running on http://node071:18000"]
    assert not served_address(lines, "node07", "8000", ())
    assert served_address(["Uvicorn running on http://node07:8000"], "node07", "8000", ())


def test_a_small_file_that_the_script_puts_into_its_command_is_part_of_what_was_submitted(tmp_path: Path) -> None:
    (tmp_path / "server.txt").write_text("http://node07:8000/score\n")
    spec = JobSpec("rl", 'URL=$(cat server.txt)\npython train.py --url "$URL" $(< /no/such)\n', work_dir=tmp_path)
    assert "http://node07:8000/score\n" in configured_texts(job("9", tmp_path, spec=spec))
