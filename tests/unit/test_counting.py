"""Counters between checks: which reading is the measure, what is kept, and that nothing of it makes a check fail."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.node_self_check import ReadingsFile
from assistant.counting import Kept, Reading, after, from_text, past, to_text
from assistant.errors import StoreBusy, StoreError, Unavailable
from assistant.ports import JumpingClock, Reply
from assistant.store import Store
from assistant.tooling import Context, Readings
from assistant.tools.nodes import check_nodes

NOW = datetime(2026, 2, 11, 12, 0, tzinfo=UTC)
BOOT = NOW - timedelta(days=10)
HOUR = timedelta(hours=1)


def reading(minutes_ago: float, count: int = 0, booted: datetime | None = BOOT, name: str = "a") -> Reading:
    return Reading(NOW - timedelta(minutes=minutes_ago), booted, {name: count})


@pytest.mark.parametrize(
    ("ago", "chosen"),
    [([], None), ([5], 5), ([90], 90), ([90, 5], 90), ([300, 90], 90), ([300, 60], 60), ([300, 59], 300)],
)
def test_the_newest_reading_that_is_a_window_old_is_the_measure_else_the_oldest(ago: Sequence[int], chosen: int | None) -> None:
    found = past(Kept(tuple(reading(one) for one in ago)), NOW, BOOT, HOUR).reading
    assert found == (None if chosen is None else reading(chosen))


@pytest.mark.parametrize(
    ("kept", "booted", "why"),
    [
        (Kept(), BOOT, "first reading"),
        (Kept(why="the file is damaged"), BOOT, "the file is damaged"),
        (Kept((reading(90),)), None, "it is not known when the node was booted"),
        (Kept((reading(90, booted=None),)), BOOT, "it is not known when the node was booted"),
        (Kept((reading(90),)), NOW - HOUR, "the node was booted since the last reading"),
        (Kept((reading(-90),)), BOOT, "the clock went back"),
    ],
)
def test_without_a_measure_it_is_said_why(kept: Kept, booted: datetime | None, why: str) -> None:
    found = past(kept, NOW, booted, HOUR)
    assert (found.reading, found.why, found.told) == (None, why, f"no rate: {why}")
    assert found.growth("a", 5) is None


def test_the_time_of_a_boot_may_drift() -> None:
    assert past(Kept((reading(90),)), NOW, BOOT + timedelta(seconds=50), HOUR).reading is not None


@pytest.mark.parametrize(("minutes", "rate"), [(0, 30.0), (1, 30.0), (60, 30.0), (120, 15.0), (30 * 60, 1.0)])
def test_a_growth_is_spread_over_at_least_the_window(minutes: int, rate: float) -> None:
    growth = past(Kept((reading(minutes, 100),)), NOW, BOOT, HOUR).growth("a", 130)
    assert growth is not None
    assert growth.per_hour == rate


def test_what_went_back_and_what_is_new_has_no_growth() -> None:
    found = past(Kept((reading(90, 100),)), NOW, BOOT, HOUR)
    assert [found.growth("a", 99), found.growth("b", 3)] == [None, None]
    assert [found.no_growth("a"), found.no_growth("b")] == ["it began anew", "first reading of it"]


@pytest.mark.parametrize(
    ("ago", "stay"),
    [([], [0]), ([5], [5]), ([90], [90, 0]), ([300, 90], [90, 0]), ([300, 59], [300, 59]), ([-5], [0])],
)
def test_two_readings_a_window_apart_are_kept(ago: Sequence[int], stay: Sequence[int]) -> None:
    assert after(Kept(tuple(reading(one) for one in ago)), reading(0), HOUR) == tuple(reading(one) for one in stay)


def test_readings_of_another_boot_are_dropped() -> None:
    new = reading(0, 3, booted=NOW - HOUR)
    assert after(Kept((reading(300), reading(90))), new, HOUR) == (new,)


def test_a_counter_that_went_back_grows_from_where_it_is_now() -> None:
    (kept,) = after(Kept((reading(5, 100),)), reading(0, 2), HOUR)
    assert kept.counts == {"a": 2}
    later = past(Kept((kept,)), NOW + HOUR, BOOT, HOUR).growth("a", 4)
    assert later is not None
    assert later.count == 2


def test_a_counter_that_could_not_be_read_keeps_its_value() -> None:
    kept = after(Kept((reading(90, 100),)), reading(0, 7, name="b"), HOUR)
    assert [one.counts for one in kept] == [{"a": 100, "b": 7}, {"a": 100, "b": 7}]


def test_readings_survive_their_text() -> None:
    kept = (reading(90, 1), reading(0, 2, booted=None))
    assert from_text(to_text(kept)) == kept


DAMAGED = [
    "",
    "{",
    "{}",
    "null",
    "[1]",
    '[{"at": "x"}]',
    '[{"at": "2026-02-11T12:00:00", "booted": null, "counts": {}}]',
    '[{"at": "2026-02-11T12:00:00+00:00", "booted": null, "counts": []}]',
    '[{"at": "2026-02-11T12:00:00+00:00", "booted": 3, "counts": {}}]',
    '[{"at": "2026-02-11T12:00:00+00:00", "booted": null, "counts": {"a": "x"}}]',
    "[" * 5000,
]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_text(text)


# Where they are kept


@pytest.fixture(params=["store", "file"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Readings]:
    if request.param == "file":
        yield ReadingsFile(tmp_path / "state" / "readings.json")
        return
    with Store(tmp_path / "s.db", JumpingClock(NOW)) as store:
        yield store


def test_what_is_kept_comes_back_and_is_replaced(keeper: Readings) -> None:
    assert keeper.kept_readings(["n1"]).get("n1", Kept()) == Kept()
    for count in (1, 2):
        keeper.keep_readings({"n1": (reading(90), reading(0, count))})
    assert keeper.kept_readings(["n1"])["n1"].readings == (reading(90), reading(0, 2))


def test_the_store_keeps_many_nodes_apart(tmp_path: Path) -> None:
    with Store(tmp_path / "s.db", JumpingClock(NOW)) as store:
        nodes = [f"n{number}" for number in range(1200)]
        store.keep_readings({node: (reading(0, number),) for number, node in enumerate(nodes)})
        found = store.kept_readings(nodes)
        assert [found[node].readings[0].counts["a"] for node in nodes] == list(range(1200))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'[{"at": 1}]'])
def test_a_damaged_file_is_said_and_written_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "readings.json"
    path.write_bytes(content)
    file = ReadingsFile(path)
    assert file.kept_readings(["n1"])["n1"] == Kept(why=f"{path} is damaged and is written anew")
    file.keep_readings({"n1": (reading(0),)})
    assert file.kept_readings(["n1"])["n1"].readings == (reading(0),)


def test_a_file_is_replaced_as_a_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    file = ReadingsFile(tmp_path / "readings.json")
    for count in range(3):
        file.keep_readings({"n1": (reading(0, count),)})
    assert [path.name for path in tmp_path.iterdir()] == ["readings.json"]


def test_a_folder_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    file = ReadingsFile(tmp_path / "file" / "readings.json")
    assert file.kept_readings(["n1"])["n1"].why.endswith("Not a directory")
    with pytest.raises(StoreError, match="set state_folder to a local disk"):
        file.keep_readings({"n1": (reading(0),)})


def test_a_disk_that_does_not_answer_costs_its_deadline(tmp_path: Path) -> None:
    import os

    path = tmp_path / "readings.json"
    os.mkfifo(path)
    assert "does not answer" in ReadingsFile(path, deadline_s=0.05).kept_readings(["n1"])["n1"].why
    assert any(thread.daemon for thread in threading.enumerate())


# Whole checks


class Node:
    """A transport to one node whose counter the test sets."""

    name = "fake"

    def __init__(self) -> None:
        self.symbols = 0
        self.uptime_s = 864_000.0

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        text = " ".join(command)
        port = f"port m 1 state 4: ACTIVE\nport m 1 symbol_error {self.symbols}\nend\n"
        answers = {"true": "", "cat /proc/uptime": f"{self.uptime_s} 1.00\n"}
        out = answers.get(text, port if "infiniband" in text and "port" in text else None)
        return {node: Reply(node, True, 127 if out is None else 0, out or "", "") for node in nodes}


class NoScheduler:
    name = "none"

    def nodes(self) -> Any:
        raise Unavailable("controller is down")


class Broken:
    """A store that another process holds."""

    def kept_readings(self, nodes: Sequence[str]) -> Mapping[str, Kept]:
        raise StoreBusy("held")

    def keep_readings(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        raise StoreBusy("held")


def said(node: Node, clock: JumpingClock, readings: Readings | None) -> tuple[str, str]:
    context = Context(NoScheduler(), node, clock, random.Random(1), None, readings=readings)  # type: ignore[arg-type]
    probed = check_nodes(context, nodes=["n1"])["nodes"]["n1"]["probes"]
    return next((one["status"], one["text"]) for one in probed if one["probe"] == "infiniband_errors")


def later(node: Node, clock: JumpingClock, hours: float, symbols: int) -> None:
    clock.sleep(hours * 3600)
    node.uptime_s += hours * 3600
    node.symbols += symbols


def test_a_second_check_judges_what_came_since_the_first(keeper: Readings) -> None:
    node, clock = Node(), JumpingClock(NOW)
    assert said(node, clock, keeper) == ("ok", "error counters of 1 ports are low (no rate: first reading)")
    later(node, clock, 2, 1000)
    status, text = said(node, clock, keeper)
    assert (status, text) == ("warning", "port m/1: 500 symbol errors an hour since 2026-02-11T12:00:00Z, 1000 in all")
    later(node, clock, 2, 0)
    assert said(node, clock, keeper) == ("ok", "error counters of 1 ports are low (since 2026-02-11T14:00:00Z)")


def test_a_reboot_begins_anew(keeper: Readings) -> None:
    node, clock = Node(), JumpingClock(NOW)
    node.symbols = 40
    said(node, clock, keeper)
    later(node, clock, 2, 1000)
    node.uptime_s = 600.0
    status, text = said(node, clock, keeper)
    assert status == "warning"
    assert text.endswith("in all (no rate between checks: the node was booted since the last reading)")


def test_a_check_each_minute_finds_what_comes_slowly(keeper: Readings) -> None:
    node, clock = Node(), JumpingClock(NOW)
    said(node, clock, keeper)
    found = []
    for _ in range(180):
        later(node, clock, 1 / 60, 4)
        found.append(said(node, clock, keeper)[0])
    assert found[:29] == ["ok"] * 29
    assert set(found[60:]) == {"warning"}


@pytest.mark.parametrize(
    ("readings", "says"),
    [(None, "nothing is kept between checks here"), (Broken(), "earlier readings cannot be read: held")],
    ids=["nowhere", "a store that is held"],
)
def test_where_nothing_can_be_kept_the_check_goes_on_and_says_so(readings: Readings | None, says: str) -> None:
    status, text = said(Node(), JumpingClock(NOW), readings)
    assert (status, text) == ("ok", f"error counters of 1 ports are low (no rate: {says})")
