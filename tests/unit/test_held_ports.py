"""Which port a job could not take, and who holds it: lines, the program on real sockets, and what its answer means."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.resource_holders import PortHolder, holder_of, port_in_use
from assistant.records import Job, JobSpec, JobState
from assistant.tools.holders import _PORT_PROGRAM, holders_of


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server "
         "socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).", 29500),
        ("RuntimeError: The server socket has failed to listen on any local network address. port: 29501, useIpv6: true, code: "
         "-98, name: EADDRINUSE, message: address already in use", 29501),
        ("OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use", 8000),
        ("Error: listen EADDRINUSE: address already in use :::3000", 3000),
        ("[Errno 98] Address already in use: ('127.0.0.1', 5005)", 5005),
        ("OSError: Port 7860 is in use. If a gradio.Blocks is already running on the port, close() it", 7860),
        ("bind: Address already in use (host 10.1.2.3:12355)", 12355),
        ("grpc: Failed to add port to server: Address already in use localhost:6006", 6006),
        ("ERROR: port 6379 is already used by another Redis", 6379),
        ("zmq.error.ZMQError: Address already in use (addr='tcp://*:5557')", 5557),
        ("OSError: [Errno 98] Address already in use", None),
        ("bind /run/user/7/vllm.sock: Address already in use (port 29500)", None),
        ("ConnectionRefusedError: [Errno 111] connect to 10.1.2.3:29500", None),
        ("step 29500 took 3 s on port 29500", None),
    ],
)  # fmt: skip
def test_a_line_names_the_port_that_is_in_use(text: str, port: int | None) -> None:
    assert port_in_use([text]) == port


@pytest.mark.parametrize(
    ("script", "port"),
    [
        ("export MASTER_PORT=29511\nsrun python train.py", 29511),
        ("torchrun --master_port=29512 train.py", 29512),
        ("torchrun --rdzv-endpoint=$HEAD:29513 train.py", 29513),
        ("export MASTER_PORT=29511\ntorchrun --master_port 29512 x.py", None),  # which of two
        ("python train.py", None),
        ("export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))", None),
    ],
)
def test_where_no_line_names_it_the_script_may(script: str, port: int | None) -> None:
    assert port_in_use(["OSError: [Errno 98] Address already in use"], script) == port
    assert port_in_use(["RuntimeError: loss is nan"], script) is None


def job(number: str, user: str = "ada", state: JobState = JobState.RUNNING, nodes: tuple[str, ...] = ("n1",), raw: str = "") -> Job:
    return Job(number, f"job{number}", user, state, "gpu", nodes, None, Path("/w"), None, None, None, None, None,
               spec=JobSpec("llm", ""), raw_id=raw)  # fmt: skip


def row(job: str = "1", user: str = "ada", pid: int = 71, *, listens: bool = True) -> dict[str, Any]:
    return {"pid": pid, "user": user, "job": job, "program": "python3 train.py", "listens": listens}


ENDED = job("9", state=JobState.FAILED)


@pytest.mark.parametrize(
    ("rows", "jobs", "kind"),
    [
        ([], [], PortHolder.NOBODY),
        ([row()], [job("1")], PortHolder.OTHER_JOB),
        ([row("41")], [job("4_1", raw="41")], PortHolder.OTHER_JOB),
        ([row(user="eve")], [job("1")], PortHolder.NO_JOB),  # who says that it is of somebody else's job
        ([row()], [job("1", nodes=("n2",))], PortHolder.NO_JOB),  # the job does not run there
        ([row("8")], [ENDED], PortHolder.LEFT_BEHIND),
        ([row("8", "eve")], [], PortHolder.NO_JOB),  # others' jobs may not be shown to us
        ([row("9")], [ENDED], PortHolder.OWN),
        ([row()], [job("1", state=JobState.COMPLETED)], PortHolder.LEFT_BEHIND),
        (
            [row()],
            [job("1", state=JobState.COMPLETED), job("2")],
            PortHolder.NO_JOB,
        ),  # whose other job runs there: it may be of that
        ([row("", "root")], [job("2")], PortHolder.NO_JOB),
        ([row("", "", 0)], [], PortHolder.NO_JOB),
        ([row("1", listens=False), row("2")], [job("1"), job("2", "ada")], PortHolder.OTHER_JOB),
    ],
)
def test_who_holds_a_port_is_believed_only_as_far_as_the_scheduler_agrees(
    rows: list[dict[str, Any]], jobs: list[Job], kind: PortHolder
) -> None:
    holder = holder_of(rows, "n1", ENDED, jobs)
    assert holder.kind is kind
    assert kind is PortHolder.NOBODY or holder.text


def test_the_program_finds_the_process_that_listens_and_its_job() -> None:
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(60)"
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "SLURM_JOB_ID": "4711"}, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    try:
        port = child.stdout.readline().strip()
        done = subprocess.run(["sh", "-c", _PORT_PROGRAM, "sh", port], capture_output=True, text=True, check=False, timeout=30)
        (holder,) = holders_of(done.stdout)
        assert (holder["pid"], holder["job"], holder["listens"]) == (child.pid, "4711", True)
        assert "create_server" in holder["program"]
    finally:
        child.kill()
        child.communicate()
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    done = subprocess.run(["sh", "-c", _PORT_PROGRAM, "sh", str(number)], capture_output=True, text=True, check=False, timeout=30)
    assert (holders_of(done.stdout), done.stdout) == ([], "end\n")


def test_a_socket_whose_process_may_not_be_seen_is_held_all_the_same() -> None:
    assert holders_of("socket 0A 991\nend\n") == [{"pid": 0, "user": "", "job": "", "program": "", "listens": True}]
    assert holders_of("end\n") == []
    assert [one["user"] for one in holders_of("socket 0A 9\nprocess 9 7 - 3\tda silva\tpython x\nprocess 8 7 - -\tx\ty\nend")] == [
        "da silva"
    ]
