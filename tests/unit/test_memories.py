"""Memories: kept once an incident, found by nearness, never by vectors that another embedder made or that are damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.llm.embedded import HashingEmbedder, vector_of
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind
from assistant.store import Memory, Store

AT = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
LINES = ("flux capacitor 7 lost its uplink", "quota of user ada exceeded on /scratch", "switch fabric manager went away")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db", JumpingClock(AT)) as store:
        yield store


def remember(store: Store, line: str, reason: str = "network_error", *, embedder: str = "hashing-1") -> int:
    incident, _ = store.open_incident(Event(EventKind.REQUESTED, line, None, AT))
    memory = Memory(incident.id, reason, "none", (line,), f"# job.log\n{line}", "", (), "", "operator:ada", "she saw it", AT)
    store.keep_memory(memory, embedder=embedder, vectors=[vector_of(line)])
    return incident.id


def asked(text: str) -> list[list[float]]:
    return [vector_of(text)]


def test_a_memory_comes_back_as_it_was_kept_and_is_in_the_audit(store: Store) -> None:
    number = remember(store, LINES[0])
    kept = store.memory(number)
    assert kept is not None
    assert (kept.reason, kept.lines, kept.job, kept.by) == ("network_error", (LINES[0],), LINES[0], "operator:ada")
    assert [row.what for row in store.audit(incident=number)][-1] == "memory.kept"
    assert store.verify() is None


def test_secrets_are_not_remembered(store: Store) -> None:
    number = remember(store, "login with password=hunter2 failed")
    kept = store.memory(number)
    assert kept is not None
    assert "hunter2" not in kept.text + kept.lines[0]


def test_the_nearest_memory_is_the_one_with_the_same_words(store: Store) -> None:
    numbers = [remember(store, line) for line in LINES]
    (first, *others) = store.nearest(asked("[rank3]: flux capacitor 12 lost its uplink"), embedder="hashing-1")
    assert (first.incident, first.line, first.query) == (numbers[0], 0, 0)
    assert first.similarity > 0.8 > 0.4 > max(other.similarity for other in others)


def test_a_memory_that_was_taken_back_is_found_no_more(store: Store) -> None:
    number = remember(store, LINES[0])
    assert store.nearest(asked(LINES[0]), embedder="hashing-1")
    assert store.take_back(number, by="cli:bob", why="it was the cable")
    assert not store.take_back(number, by="cli:bob", why="twice")
    assert (store.memory(number), store.memories(), store.nearest(asked(LINES[0]), embedder="hashing-1")) == (None, [], [])
    assert store.audit(incident=number)[-1].what == "memory.taken_back"


def test_a_memory_that_is_kept_again_replaces_the_one_before(store: Store) -> None:
    number = remember(store, LINES[0])
    before = store.nearest(asked(LINES[0]), embedder="hashing-1")
    memory = store.memory(number)
    assert memory is not None
    other = replace(memory, lines=(LINES[1],), reason="os_error")
    store.keep_memory(other, embedder="hashing-1", vectors=[vector_of(LINES[1])])
    assert [found.reason for found in store.memories()] == ["os_error"]
    assert store.nearest(asked(LINES[0]), embedder="hashing-1")[0].similarity < before[0].similarity - 0.3


def test_vectors_of_another_embedder_are_never_compared(store: Store) -> None:
    number = remember(store, LINES[0], embedder="other-1")
    assert store.nearest(asked(LINES[0]), embedder="hashing-1") == []
    assert [memory.incident for memory in store.strangers("hashing-1", 10)] == [number]
    store.set_vectors(number, embedder="hashing-1", vectors=[vector_of(LINES[0])])
    assert store.strangers("hashing-1", 10) == []
    assert store.nearest(asked(LINES[0]), embedder="hashing-1")[0].incident == number


@pytest.mark.parametrize("blob", [b"", b"123", b"\xff" * 4096], ids=["empty", "cut", "not numbers"])
def test_a_damaged_vector_is_left_out_with_a_warning(store: Store, caplog: pytest.LogCaptureFixture, blob: bytes) -> None:
    bad, good = remember(store, LINES[0]), remember(store, LINES[1])
    with store.transaction() as connection:
        connection.execute("UPDATE memories SET vectors = ? WHERE incident = ?", [blob, bad])
        connection.execute("UPDATE properties SET value = '99' WHERE name = 'memories'")
    with caplog.at_level(logging.WARNING):
        assert [near.incident for near in store.nearest(asked(LINES[0]), embedder="hashing-1")] == [good]
    assert f"incident={bad} the vectors of its memory are damaged" in caplog.text


@pytest.mark.parametrize(
    ("one", "other", "least", "most"),
    [
        ("OSError: [Errno 113] No route to host", "OSError: [Errno 113] No route to host", 0.99, 1.01),
        ("NCCL WARN lost peer 10.1.2.3<4711>", "NCCL WARN lost peer 10.9.9.9<80>", 0.95, 1.01),
        ("OSError: [Errno 113] No route", "OSError: [Errno 5] Input/output", -1, 0.6),
        ("CUDA out of memory on GPU 3", "Permission denied: /scratch/x", -1, 0.2),
        ("", "anything", -0.01, 0.01),
    ],
    ids=["same", "other numbers", "other errno", "strangers", "nothing"],
)
def test_lines_lie_close_when_they_share_telling_words(one: str, other: str, least: float, most: float) -> None:
    first, second = HashingEmbedder().embed([one, other])
    assert least <= sum(a * b for a, b in zip(first, second, strict=True)) <= most


def test_a_hashed_vector_is_the_same_in_every_process() -> None:
    assert [(place, round(value, 4)) for place, value in enumerate(vector_of("lost uplink")) if abs(value) > 0.36] == [
        (44, 0.4233),
        (104, -0.4233),
    ]
