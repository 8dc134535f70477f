"""What the transports promise: a reply for every node, never an exception, and `reached` only when the answer is the node's own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from assistant.errors import ContentError
from assistant.transports.local import LocalTransport, RecordedTransport


@pytest.fixture
def transport(tmp_path: Path) -> LocalTransport:
    for name in ("node01", "node02"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "kernel.log").write_text(f"I am {name}\n", encoding="utf-8")
    return LocalTransport(tmp_path)


def test_a_command_runs_in_the_folder_of_each_node(transport: LocalTransport) -> None:
    replies = transport.run(["node01", "node02"], ["cat", "kernel.log"], timeout_s=5)
    assert {node: reply.out for node, reply in replies.items()} == {"node01": "I am node01\n", "node02": "I am node02\n"}
    assert all(reply.reached and reply.status == 0 for reply in replies.values())


def test_a_missing_program_is_an_answer_with_status_127(transport: LocalTransport) -> None:
    reply = transport.run(["node01"], ["no-such-program-here"], timeout_s=5)["node01"]
    assert (reply.reached, reply.status) == (True, 127)


def test_a_failing_command_keeps_its_status_and_words(transport: LocalTransport) -> None:
    reply = transport.run(["node01"], ["sh", "-c", "echo no >&2; exit 3"], timeout_s=5)["node01"]
    assert (reply.reached, reply.status, reply.err) == (True, 3, "no\n")


def test_a_dead_node_is_not_reached_while_the_others_answer(transport: LocalTransport) -> None:
    (transport.nodes_folder / "node02" / "down").touch()
    replies = transport.run(["node01", "node02", "node77"], ["true"], timeout_s=5)
    assert [replies[node].reached for node in ("node01", "node02", "node77")] == [True, False, False]
    assert "No route to host" in replies["node02"].err


def test_a_command_that_does_not_end_is_killed_with_its_children(transport: LocalTransport) -> None:
    began = time.monotonic()
    reply = transport.run(["node01"], ["sh", "-c", "(sleep 1; echo late > late) & sleep 30"], timeout_s=0.2)["node01"]
    assert (reply.reached, reply.status) == (False, None)
    assert time.monotonic() - began < 5
    time.sleep(1.2)
    assert not (transport.nodes_folder / "node01" / "late").exists()


def test_no_nodes_give_no_replies(transport: LocalTransport) -> None:
    assert transport.run([], ["true"], timeout_s=1) == {}


def test_a_recording_answers_with_the_first_entry_that_fits(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text(
        """
        [[reply]]
        node = "node02"
        command = "dmesg -T"
        out = "Xid"
        [[reply]]
        node = "node03"
        reached = false
        err = "no route"
        [[reply]]
        command = "dmesg -T"
        out = "quiet"
        """,
        encoding="utf-8",
    )
    recorded = RecordedTransport.from_file(tmp_path / "r.toml")
    replies = recorded.run(["node01", "node02", "node03"], ["dmesg", "-T"], timeout_s=1)
    assert [(reply.out, reply.reached, reply.status) for reply in replies.values()] == [
        ("quiet", True, 0),
        ("Xid", True, 0),
        ("", False, None),
    ]
    assert not recorded.run(["node01"], ["uptime"], timeout_s=1)["node01"].reached
    assert recorded.calls[-1] == (("node01",), ("uptime",))


def test_a_malformed_recording_names_file_and_key(tmp_path: Path) -> None:
    (tmp_path / "r.toml").write_text("[[reply]]\nnod = 1\n", encoding="utf-8")
    with pytest.raises(ContentError, match=r"r\.toml:2: nod: unknown key; did you mean 'node'"):
        RecordedTransport.from_file(tmp_path / "r.toml")
