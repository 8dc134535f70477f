"""`nightshift status`: what it says, and the exit codes on which monitoring rests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.daemon.metrics import MetricsServer, WatchStanding
from assistant.daemon.pass_result import PassResult
from assistant.ports import JumpingClock, SystemClock
from assistant.store import Store
from tests.cli.conftest import Run

OWNER = "watch@login1:4821.77"


@pytest.fixture
def watched(store_path: Path) -> Store:
    """The store of the command line, with a watch that leads and made a whole pass just now."""
    kept = Store(store_path, SystemClock())
    kept.lead(OWNER, 60)
    _passes(kept)
    return kept


def _passes(store: Store, *, ago_s: float = 5, trouble: tuple[str, ...] = ()) -> None:
    at = datetime.now(UTC) - timedelta(seconds=ago_s)
    store.keep_pass(OWNER, at=at, seconds=0.4, leads=True, whole=not trouble, trouble=trouble)


def test_a_watch_that_sees_everything_is_ok(cli: Run, watched: Store) -> None:
    said = cli("status")
    assert said.code == 0
    first = said.out.splitlines()[0]
    assert first.startswith(
        f"NIGHTSHIFT STATUS OK - {OWNER} leads, last whole pass 5 s ago, 0 open incidents | whole_pass_age=5s;;150;0"
    )
    assert "policy          mode observe" in said.out


def test_a_degraded_pass_is_a_warning_that_says_why(cli: Run, watched: Store) -> None:
    _passes(watched, trouble=("squeue | did not\nanswer",))
    said = cli("status")
    assert said.code == 1
    first = said.out.splitlines()[0]
    assert "NIGHTSHIFT STATUS WARNING - the last pass was degraded: squeue / did not answer" in first
    assert first.count("|") == 1


def test_what_waits_is_a_warning_with_the_command(cli: Run, store: Store) -> None:
    _passes(store)
    said = cli("status")
    assert said.code == 1
    assert "1 change waits for a yes or no: nightshift approve 1" in said.out.splitlines()[0]


def test_no_whole_pass_for_too_long_is_critical(cli: Run, watched: Store) -> None:
    _passes(watched, ago_s=200)
    assert cli("status", "--max-age", 5).code == 0
    said = cli("status")
    assert said.code == 2
    assert "CRITICAL - no pass saw everything for 3 min" in said.out


def test_without_a_store_nothing_is_known_and_none_is_made(cli: Run, store_path: Path) -> None:
    said = cli("status")
    assert said.code == 3
    assert said.out.startswith("NIGHTSHIFT STATUS UNKNOWN - ")
    assert not store_path.exists()


def test_wrong_usage_and_wrong_settings_are_unknown_too(cli: Run, home: Path) -> None:
    said = cli("status", "--maxage", 3)
    assert said.code == 3
    assert said.out.startswith("NIGHTSHIFT STATUS UNKNOWN - ")
    (home / "c.toml").write_text("nonsense = 1\n")
    said = cli("--config", home / "c.toml", "status")
    assert (said.code, said.out.startswith("NIGHTSHIFT STATUS UNKNOWN - ")) == (3, True)


def test_json_holds_all_of_it(cli: Run, store: Store) -> None:
    _passes(store, trouble=("node7 is silent",))
    said = cli("status", "--json")
    (found,) = said.objects
    assert (said.code, found["level"]) == (2, "critical"), "it never saw everything"
    assert found["trouble"] == ["node7 is silent"]
    assert found["approvals"] == [1]
    assert found["open_incidents"] == {"open": 1}
    assert found["mode"] == "observe"


def test_another_watch_that_stands_by_is_named(cli: Run, watched: Store) -> None:
    watched.keep_pass("watch@login2:1.2", at=datetime.now(UTC), seconds=0, leads=False, whole=False)
    assert "stands by       watch@login2:1.2" in cli("status").out


def test_it_can_be_asked_from_another_host(cli: Run, watched: Store, tmp_path: Path) -> None:
    metrics = MetricsServer(watched, lambda: WatchStanding("1", "act", "/etc/stop"), listen="127.0.0.1:0")
    try:
        metrics.report(PassResult(datetime.now(UTC), 0.1, leads=True, trouble=("x",)))
        url = f"http://127.0.0.1:{metrics.port}/metrics"
        said, found = cli("status", "--url", url), cli("status", "--url", url, "--json").objects[0]
    finally:
        metrics.close()
    assert said.code == 1
    assert "the last pass was degraded, the kill switch is set" in said.out
    assert (found["leader"], found["mode"], found["troubles"]) == (url, "act", 1)
    assert cli("status", "--url", url).code == 3, "nobody answers any more"


def test_the_store_on_a_shared_folder_can_be_asked_from_another_host(
    cli: Run, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = store_path.parent / "shared"
    shared.mkdir(parents=True)
    # so the store is kept without shared memory, which hosts do not share
    monkeypatch.setattr("assistant.store.connection._mounts", lambda: f"srv:/x {shared} nfs4 rw 0 0\n")
    with Store(shared / "nightshift.db", SystemClock()) as there:
        there.lead(OWNER, 60)
        _passes(there, trouble=("node7 is silent",))
        there.keep_pass("watch@login2:1.2", at=datetime.now(UTC), seconds=0, leads=False, whole=False)
        monkeypatch.setattr("socket.gethostname", lambda: "login9")
        said = cli("--store", shared / "nightshift.db", "status")
        assert there.rows("PRAGMA journal_mode")[0][0] == "delete"
    told = " ".join(said.out.split())
    assert f"leads {OWNER}" in told
    assert "stands by watch@login2:1.2" in told
    assert "degraded node7 is silent" in told


def test_what_people_know_of_what_is_set_aside_and_what_was_remarked_is_shown(cli: Run, watched: Store) -> None:
    known = "job 7: its log cannot be read (since 2026-03-10 12:00Z)"
    watched.keep_pass(OWNER, at=datetime.now(UTC), seconds=0.4, leads=True, whole=True, trouble=(known,))
    watched.set_aside(["2 logs may not be read, so no hangs and losses are noticed of jobs 8, 9"])
    watched.add_remarks(["node node01: allocated -> draining (firmware), job 7 runs there"], datetime.now(UTC))
    said, (found,) = cli("status"), cli("status", "--json").objects
    assert said.code == 1, "people know, and it stays visible"
    assert f"the last pass was degraded: {known}" in said.out
    assert "set aside       2 logs may not be read" in said.out
    assert any(line.startswith("remarks") and line.endswith("job 7 runs there") for line in said.out.splitlines())
    assert (found["aside"][0][:6], found["remarks"][0]["text"][:11]) == ("2 logs", "node node01")


def test_metrics_of_something_else_say_nothing_about_us(cli: Run, store_path: Path) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    server, thread = start_http_server(0, "127.0.0.1", CollectorRegistry())
    try:
        said = cli("status", "--url", f"http://127.0.0.1:{server.server_port}/metrics")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert said.code == 3
    assert "the metrics of something else" in said.out
    assert cli("status", "--url", "login1:9469").code == 3


def test_asking_writes_nothing(cli: Run, store_path: Path) -> None:
    clock = JumpingClock(datetime(2026, 3, 1, tzinfo=UTC))
    with Store(store_path, clock) as kept:
        before = kept.newest_row()
        cli("status")
        assert (kept.newest_row(), kept.watches()) == (before, [])
