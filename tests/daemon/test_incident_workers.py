"""The threads that work on incidents: so many side by side, others in place of those that hang, an end that waits for work only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait

import pytest

from assistant.daemon.loop import IncidentWorkers


class Work:
    """Pieces of work that go on until they are let go."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.lock = threading.Lock()
        self.at_once = self.most = 0

    def __call__(self) -> str:
        with self.lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.free.wait(20)
        with self.lock:
            self.at_once -= 1
        return "done"


@pytest.fixture
def work() -> Iterator[Work]:
    made = Work()
    yield made
    made.free.set()


def until(holds: object) -> None:
    ends = time.monotonic() + 10
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_so_many_work_side_by_side_and_each_piece_is_done_once(work: Work) -> None:
    crew = IncidentWorkers(3)
    flights = [crew.submit(work) for _ in range(40)]
    until(lambda: work.at_once == 3)
    work.free.set()
    wait(flights, 10)
    assert ([one.result() for one in flights], work.most) == (["done"] * 40, 3)
    crew.shutdown()


def test_what_goes_wrong_is_handed_to_whoever_asks() -> None:
    crew = IncidentWorkers(1)
    with pytest.raises(ZeroDivisionError):
        crew.submit(lambda: 1 // 0).result(10)
    assert crew.submit(lambda: 7).result(10) == 7
    crew.shutdown()


def test_those_that_hang_keep_no_others_waiting(work: Work) -> None:
    crew = IncidentWorkers(2, relief_s=0.05)
    hanging: list[Future[str]] = [crew.submit(work) for _ in range(2)]
    waiting = crew.submit(lambda: "soon")
    until(lambda: work.at_once == 2)
    time.sleep(0.1)
    crew.relieve()
    assert waiting.result(10) == "soon"
    assert min(crew.busy_s()[one] for one in hanging) >= 0.05
    # and those that hang are not waited for at the end, nor is there no end to them
    began = time.monotonic()
    crew.shutdown()
    assert time.monotonic() - began < 2


def test_there_are_never_more_threads_than_the_most(work: Work) -> None:
    crew = IncidentWorkers(2, relief_s=0.0, most=5)
    for _ in range(20):
        crew.submit(work)

    def five_at_once() -> bool:
        crew.relieve()  # now and then, as the watch does: a thread that has only begun to exist hangs with nothing yet
        return work.at_once == 5

    until(five_at_once)
    crew.relieve()
    time.sleep(0.05)
    assert work.most == 5


def test_the_end_waits_for_what_is_being_done_and_begins_nothing_more(work: Work) -> None:
    crew = IncidentWorkers(1)
    doing, left = crew.submit(work), crew.submit(lambda: "never")
    until(lambda: work.at_once == 1)
    threading.Timer(0.2, work.free.set).start()
    crew.shutdown(cancel_futures=True)
    assert (doing.result(0), left.cancelled()) == ("done", True)
    with pytest.raises(RuntimeError):
        crew.submit(lambda: None)
