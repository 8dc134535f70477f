"""A server that is a step of the waiting job: dead only where its node, its log and the port agree, else nothing is ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assistant.engine.evidence.own_servers import background_servers, step_end
from assistant.engine.outcomes.living_jobs import waiting_job, with_wait
from assistant.engine.outcomes.waiting_clients import with_lost_server
from assistant.engine.retry_policy import AWAITS_ITSELF, unproven_hang
from assistant.records import (
    Action,
    Category,
    DecidedBy,
    Diagnosis,
    Event,
    EventKind,
    Incident,
    Job,
    JobSpec,
    JobState,
    Node,
    NodeState,
)
from assistant.records.jobs import NONE_THERE
from assistant.watch.hang import WAITS, ended_task
from tests.unit.test_ended_servers import LOST, job

JUDGE = "judge at http://node07:8300 does not answer (Connection refused), trying again in 5 s"
SCRIPT = """#!/bin/bash
PORT=8300
JUDGE_NODE=node07
srun -N1 -w node07 --overlap python3 judge/score_service.py \\
    --port $PORT > judge.log &
while ! curl -sf http://node07:$PORT/ready; do sleep 2; done
srun -N1 -w node03 --overlap python3 ppo.py --judge http://node07:$PORT
"""
KILLED = "srun: error: node07: task 0: Killed"
OOM = "[Sun Mar  1 11:59:00 2026] Out of memory: Killed process 811 (python3) total-vm:9kB, anon-rss:8kB, file-rss:0kB"
PPO, SERVICE = "python3.11 ppo.py", "python3.11 score_service.py"


class Cluster(SimpleNamespace):
    """An engine with one waiting job; what its nodes answer is given."""

    @classmethod
    def of(cls, waiting: Job, line: str, answers: dict[str, Any]) -> Any:
        event = Event(EventKind.HANG, "9", None, LOST, {WAITS: line, "waits_count": 7, "step": 40})
        stages: list[str] = []
        store = SimpleNamespace(
            events=lambda _: [event],
            stages=lambda _: stages,
            mark_stage=lambda _, stage: stages.append(stage),
            diagnosis=lambda _: cls.judged,
            add_evidence=lambda *_: None,
            evidence=lambda _: [],
            incidents=lambda **_: [],
            calls=lambda _: [],
            clock=SimpleNamespace(now=lambda: LOST),
        )

        def call(tool: str, *_: Any, **__: Any) -> Any:
            value = answers.get(tool)
            return SimpleNamespace(ok=value is not None, value=value, error="no answer")

        return cls(
            store=store,
            stages=stages,
            gate=SimpleNamespace(call=call),
            scheduler=SimpleNamespace(job=lambda _: waiting, nodes=lambda: [Node(name, NodeState.IDLE) for name in waiting.nodes]),
            watcher=SimpleNamespace(jobs=[waiting], view=lambda *_: None),
            clock=SimpleNamespace(now=lambda: LOST),
        )

    judged: Diagnosis | None = None


KERNEL = Diagnosis("out_of_memory_error", Category.FRAMEWORK, Action.NONE, 0.99, DecidedBy.RULE, (), (), (), "memory", "less")
INCIDENT = cast(
    "Incident", SimpleNamespace(id=5, job="9", kind=EventKind.HANG, attempt=0, opened=LOST, failed_at=LOST, parent=None)
)


def waiting(folder: Path, log: str = KILLED, script: str = SCRIPT, nodes: tuple[str, ...] = ("node03", "node07")) -> Job:
    made = job("9", folder, ended=None, log=f"step 40\n{log}\n", nodes=nodes)
    (folder / "ppo.sbatch").write_text(script)
    return replace(made, state=JobState.RUNNING, spec=JobSpec("ppo", script, work_dir=folder), work_dir=folder)


def answers(
    *, port: dict[str, Any] | None = None, programs: dict[str, list[str]] | None = None, kernel: str = OOM
) -> dict[str, Any]:
    listed = programs if programs is not None else {"node03": [PPO]}
    return {
        "port_holders": port if port is not None else {"free": ["node03", "node07"], "holders": {}, "unknown": {}},
        "job_processes": {
            "programs": listed,
            "unknown": {node: NONE_THERE for node in ("node03", "node07") if node not in listed},
        },
        "kernel_log": {"text": {"node07": kernel}, "unknown": {}},
    }


def judged(engine: Any, of: Job) -> Diagnosis:
    diagnosis = with_wait(engine, INCIDENT, KERNEL, of)
    type(engine).judged = diagnosis
    return diagnosis


@pytest.mark.parametrize(
    ("line", "log", "given"),
    [
        (JUDGE, KILLED, answers()),
        (JUDGE, "srun: error: node07: task 0: Exited with exit code 1", answers(kernel="")),
        (JUDGE.replace("node07", "node07.cluster"), "nothing", answers()),  # the kernel alone says so
        (JUDGE.replace("node07", "localhost"), KILLED, answers()),
        (JUDGE, KILLED, answers(programs={"node03": [PPO], "node07": ["bash", PPO]})),
    ],
)
def test_a_dead_step_of_the_job_is_named_and_the_job_is_to_be_started_again(
    tmp_path: Path, line: str, log: str, given: dict[str, Any]
) -> None:
    of = waiting(tmp_path, log)
    engine = Cluster.of(of, line, given)
    diagnosis = judged(engine, of)
    assert (diagnosis.reason, diagnosis.action) == ("hang", Action.RESTART_SAME_NODES)
    assert "score_service.py is gone from node07" in diagnosis.summary
    assert ("Killed process 811" in diagnosis.summary) is bool(given["kernel_log"]["text"]["node07"])
    assert f"scancel 9, then cd {tmp_path} && sbatch ppo.sbatch" in diagnosis.advice
    assert "Do not restart" not in diagnosis.advice
    assert waiting_job(engine, INCIDENT, of) == ""
    assert engine.stages == [AWAITS_ITSELF]
    assert unproven_hang(engine.store, INCIDENT, diagnosis, of) == ""


@pytest.mark.parametrize(
    ("line", "log", "given", "script"),
    [
        (JUDGE, KILLED, answers(port={"free": ["node03"], "holders": {"node07": [{"pid": 5}]}, "unknown": {}}), SCRIPT),
        (JUDGE, KILLED, answers(port={"free": [], "holders": {}, "unknown": {"node07": "no route"}}), SCRIPT),
        (JUDGE, KILLED, answers(programs={"node03": [PPO], "node07": [SERVICE]}), SCRIPT),  # it lives, and loads yet
        (JUDGE, KILLED, answers() | {"job_processes": None}, SCRIPT),
        (JUDGE, "nothing", answers(kernel=""), SCRIPT),  # nothing of it is seen to have ended
        (JUDGE, "srun: error: node03: task 0: Killed", answers(kernel=""), SCRIPT),
        (JUDGE.replace("Connection refused", "HTTP 503"), KILLED, answers(), SCRIPT),  # it answers
        (
            JUDGE,
            KILLED,
            answers(),
            SCRIPT.replace("srun -N1 -w node07", "while true; do srun -w node07").replace("log &", "log; done &"),
        ),
    ],
)
def test_what_may_live_is_not_ended_and_its_owner_hears_how_to_look(
    tmp_path: Path, line: str, log: str, given: dict[str, Any], script: str
) -> None:
    of = waiting(tmp_path, log, script)
    engine = Cluster.of(of, line, given)
    diagnosis = judged(engine, of)
    assert diagnosis.action is Action.NONE
    assert "Whether that has ended is not known" in diagnosis.summary
    assert "scancel 9" in diagnosis.advice
    assert "It was left running" in waiting_job(engine, INCIDENT, of)
    assert AWAITS_ITSELF not in engine.stages
    assert unproven_hang(engine.store, INCIDENT, replace(diagnosis, reason="hang"), of)


@pytest.mark.parametrize(
    ("line", "script"),
    [
        (JUDGE.replace("node07", "node09"), SCRIPT),  # a node of no job of its own
        (JUDGE, "#!/bin/bash\nsrun python3 ppo.py --judge http://node07:8300\n"),  # nothing of it serves
        ("dataset server does not answer (Connection refused), trying again", SCRIPT),  # at no address
    ],
)
def test_what_others_serve_is_waited_for_as_before(tmp_path: Path, line: str, script: str) -> None:
    of = waiting(tmp_path, KILLED, script)
    engine = Cluster.of(of, line, answers())
    diagnosis = judged(engine, of)
    assert diagnosis.action is Action.NONE
    assert "Bring back what it waits for" in diagnosis.advice
    assert AWAITS_ITSELF not in engine.stages


@pytest.mark.parametrize(
    ("script", "program", "restarts"),
    [
        (SCRIPT, "score_service.py", False),
        (
            "python -m vllm.entrypoints.openai.api_server --port 8300 &\nsrun python ppo.py\n",
            "vllm.entrypoints.openai.api_server",
            False,
        ),
        ("redis-server --port ${P} & # store\nsrun tensorboard --logdir x &\nP=8300\n", "redis-server", False),
        ("until false\ndo\n  python serve.py --port 8300 &\n  wait\ndone\n", "serve.py", True),
        ("bash serve.sh 8300 &\n", "", False),
        ("srun python ppo.py && echo 8300\n# python serve.py --port 8300 &\n", None, False),
    ],
)
def test_the_command_that_serves_is_read_from_the_script(script: str, program: str | None, restarts: bool) -> None:
    commands = background_servers(script, "8300")
    assert [(command.program, command.restarts) for command in commands] == ([(program, restarts)] if program is not None else [])


def test_the_last_step_that_failed_on_a_node_counts_and_one_that_ended_well_does_not() -> None:
    lines = [KILLED, "srun: error: node07: tasks 0-1: Exited with exit code 0", "srun: error: node070: task 0: Killed"]
    assert step_end(lines, ("node07",)) == ("node07", KILLED)
    assert step_end(lines[1:], ("node07",)) == ("", "")


def test_an_earlier_run_at_the_same_address_is_not_what_the_job_waits_for(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    before = job("8", tmp_path / "before", log="listening on http://node07:8300\n", nodes=("node07",), ended=-timedelta(minutes=9))
    of = waiting(tmp_path)
    engine = Cluster.of(of, JUDGE, answers())
    engine.watcher.jobs = [before, of]
    diagnosis = judged(engine, of)
    assert with_lost_server(engine, INCIDENT, diagnosis, of) == diagnosis
    other = replace(of, spec=JobSpec("ppo", "#!/bin/bash\nsrun python3 ppo.py\n", work_dir=tmp_path))
    assert "job 8" in with_lost_server(engine, INCIDENT, diagnosis, other).summary


def test_a_job_that_has_ended_is_no_longer_waiting(tmp_path: Path) -> None:
    of = replace(waiting(tmp_path), state=JobState.FAILED, ended=LOST + timedelta(minutes=1))
    assert with_wait(Cluster.of(of, JUDGE, answers()), INCIDENT, KERNEL, of) is KERNEL


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (
            ["step 70", "srun: error: gpu002: task 0: Killed", "srun: Force Terminated StepId=1.1"],
            "srun: error: gpu002: task 0: Killed",
        ),
        (
            ["step 70", "srun: error: n3: tasks 4-7: Exited with exit code 139"],
            "srun: error: n3: tasks 4-7: Exited with exit code 139",
        ),
        (["srun: error: gpu002: task 0: Killed", "step 71 loss 2.0"], ""),
        (["srun: Job step created", "step 70"], ""),
        ([], ""),
    ],
)
def test_a_task_that_ended_is_told_only_where_nothing_went_on_behind_it(texts: list[str], line: str) -> None:
    assert ended_task(texts) == line


def test_a_silent_job_of_which_a_part_has_ended_is_told_with_the_line_that_says_so(tmp_path: Path) -> None:
    of = waiting(tmp_path, f"step 40\n{KILLED}\nsrun: Force Terminated StepId=9.1\n")
    engine = Cluster.of(of, "", {})
    engine.store.events = lambda _: [Event(EventKind.HANG, "9", None, LOST, {"unseen": "stacks (node07: py-spy is not there)"})]
    note = unproven_hang(engine.store, INCIDENT, cast("Diagnosis", SimpleNamespace(reason="hang", step=40)), of)
    assert f"a part of it has ended: {KILLED!r}" in note
    assert "stacks (node07: py-spy is not there)" in note
    assert "It was left running" in note
    of.log.write_text(f"{KILLED}\nstep 41\n")  # type: ignore[union-attr]
    assert "is silent" in unproven_hang(engine.store, INCIDENT, cast("Diagnosis", SimpleNamespace(reason="hang", step=40)), of)
