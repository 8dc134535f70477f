"""`nightshift breaker`: what stops all changes is shown, reset and opened by a person."""

from __future__ import annotations

from pathlib import Path

from assistant.ports import SystemClock
from assistant.store import Store
from assistant.store.standing_decisions import open_breaker, why_open
from tests.cli.conftest import Run


def test_it_is_opened_shown_and_reset_and_the_audit_says_by_whom(cli: Run, store_path: Path) -> None:
    with Store(store_path, SystemClock()) as store:
        assert "no, it never was" in cli("breaker", "show").out
        assert cli("breaker", "open", "--why", "the storage is being moved").code == 0
        assert "the storage is being moved" in (why_open(store) or "")
        shown = cli("breaker", "show").out
        assert "yes, since" in shown
        assert "nightshift breaker reset" in shown
        assert cli("breaker", "reset", "--why", "it is moved").code == 0
        assert why_open(store) is None
        rows = [row for row in store.audit(limit=10) if row.what == "watch.breaker"]
    assert sorted((row.outcome, row.why) for row in rows) == [("off", "it is moved"), ("on", "the storage is being moved")]
    assert all(row.by.startswith("cli:") for row in rows)


def test_what_stands_so_already_is_no_error(cli: Run, store_path: Path) -> None:
    Store(store_path, SystemClock()).close()
    assert "is not open" in cli("breaker", "reset").out
    cli("breaker", "open")
    said = cli("breaker", "open", "--json")
    assert said.code == 0
    assert said.objects[0]["opened"] is False


def test_show_tells_how_near_it_is(cli: Run, store_path: Path) -> None:
    Store(store_path, SystemClock()).close()
    (told,) = cli("breaker", "show", "--json").objects
    assert told["open"] is False
    assert told["last_hour"]["failed_actions"] == 0
    assert told["opens_at"]["failed_actions"] == 6


def test_status_warns_of_it_with_the_command(cli: Run, store_path: Path) -> None:
    with Store(store_path, SystemClock()) as store:
        store.lead("watch@login1:4821.77", 60)
        store.keep_pass("watch@login1:4821.77", at=store.clock.now(), seconds=0.4, leads=True, whole=True)
        open_breaker(store, why="60 incidents were the machine's fault", by="breaker")
        said = cli("status")
    assert said.code == 1
    assert "60 incidents were the machine's fault: nightshift breaker reset" in said.out.splitlines()[0]


def test_the_doctor_and_the_answer_about_the_mode_tell_of_it(cli: Run, store_path: Path) -> None:
    with Store(store_path, SystemClock()) as store:
        open_breaker(store, why="the storage is being moved", by="cli:ada")
    (found,) = [one for one in cli("doctor", "--json").objects if one["name"] == "breaker"]
    assert found["health"] == "warn"
    assert "the storage is being moved" in found["text"]
    assert "nightshift breaker reset" in cli("ask", "which mode are you in?").out
    cli("breaker", "reset")
    assert not [one for one in cli("doctor", "--json").objects if one["name"] == "breaker"]
    assert "breaker" not in cli("ask", "which mode are you in?").out
