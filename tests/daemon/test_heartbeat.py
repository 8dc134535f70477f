"""The dead man's switch: asked for after whole passes only; its failure is told and stops nothing. And what the settings make."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from assistant.config import Settings
from assistant.config.settings import HeartbeatSettings, MetricsSettings, NotifySettings, SinkSettings
from assistant.daemon.journal import HeartbeatSender
from assistant.daemon.loop import pass_once
from assistant.daemon.pass_reports import pass_listeners
from assistant.errors import ConfigError, Unavailable
from assistant.ports import JumpingClock
from assistant.records import Incident
from assistant.store import Store
from tests.daemon.http_here import HttpHere
from tests.daemon.night import Night, passed


class Service(HttpHere):
    """A service that raises the alarm when nobody asks for it."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = 200
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked.append(f"{self.command} {self.path}")
                self.send_response(service.status)
                self.end_headers()

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)
        self.url = f"http://127.0.0.1:{self.port}/ping/s3cret"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_only_a_pass_that_saw_everything_is_a_sign_of_life(service: Service, clock: JumpingClock, method: str) -> None:
    heartbeat = HeartbeatSender(service.url, method, not_oftener_s=0)
    for one in (passed(clock, trouble=("blind",)), passed(clock, leads=False), passed(clock)):
        heartbeat.report(one)
        heartbeat.close()
    assert service.asked == [f"{method} /ping/s3cret"]


def test_the_service_is_not_asked_more_often_than_it_needs(service: Service, clock: JumpingClock) -> None:
    heartbeat = HeartbeatSender(service.url)
    for _ in range(5):
        heartbeat.report(passed(clock))
        heartbeat.close()
    assert len(service.asked) == 1


def test_a_failure_is_told_without_the_url_and_the_next_beat_tries_again(
    service: Service, clock: JumpingClock, caplog: pytest.LogCaptureFixture
) -> None:
    heartbeat = HeartbeatSender(service.url, not_oftener_s=0)
    service.status = 503
    for _ in range(2):
        heartbeat.report(passed(clock))
        heartbeat.close()
    assert heartbeat.failures == 2
    assert "heartbeat failed, 2 in a row" in caplog.text
    assert "s3cret" not in caplog.text
    service.status = 200
    heartbeat.report(passed(clock))
    heartbeat.close()
    assert heartbeat.failures == 0


def test_a_service_that_says_nothing_holds_up_no_pass(clock: JumpingClock) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        heartbeat = HeartbeatSender(f"http://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.3, not_oftener_s=0)
        began = time.monotonic()
        heartbeat.report(passed(clock))
        heartbeat.report(passed(clock))
        assert time.monotonic() - began < 0.25
        heartbeat.close()


def _secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_without_settings_only_the_store_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert [type(beat).__name__ for beat in pass_listeners(Settings(), store)] == ["PassRecorder"]


def test_everything_that_is_configured_hears_of_a_pass(
    service: Service, store: Store, clock: JumpingClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    port = service.url.partition("127.0.0.1:")[2].partition("/")[0]
    sink = SinkSettings(_secret(tmp_path / "hook", f"json://127.0.0.1:{port}/hook\n"))
    settings = replace(
        Settings(),
        notify=NotifySettings(sinks={"ops": sink}, group_s=0),
        metrics=MetricsSettings(textfile=tmp_path / "n.prom"),
        heartbeat=HeartbeatSettings(_secret(tmp_path / "url", service.url)),
    )
    beats = pass_listeners(settings, store, owner="watch@here:1.2")
    assert [type(beat).__name__ for beat in beats] == ["PassRecorder", "Notifier", "MetricsServer", "HeartbeatSender", "Systemd"]
    Night(store, clock).fails("1")
    for beat in beats:
        beat.report(passed(clock))
    for beat in beats:
        beat.close()
    assert sorted(service.asked) == ["GET /ping/s3cret", "POST /hook"]
    assert "nightshift_incidents_total" in (tmp_path / "n.prom").read_text()
    assert [one.owner for one in store.watches()] == ["watch@here:1.2"]


@pytest.mark.parametrize(
    ("text", "says"),
    [("ftp://x/\n", "must hold one URL"), ("https://a/\nhttps://b/\n", "must hold one URL"), ("", "holds no URL")],
    ids=["scheme", "two", "none"],
)
def test_a_heartbeat_that_cannot_be_is_a_wrong_setting(store: Store, tmp_path: Path, text: str, says: str) -> None:
    settings = replace(Settings(), heartbeat=HeartbeatSettings(_secret(tmp_path / "url", text)))
    with pytest.raises(ConfigError, match=rf"heartbeat\.url_file: .*{says}"):
        pass_listeners(settings, store)


def _once(tmp_path: Path, service: Service) -> Settings:
    port = service.url.partition("127.0.0.1:")[2].partition("/")[0]
    sink = SinkSettings(_secret(tmp_path / "hook", f"json://127.0.0.1:{port}/hook\n"))
    return replace(
        Settings(),
        notify=NotifySettings(sinks={"ops": sink}),
        metrics=MetricsSettings(textfile=tmp_path / "n.prom", listen="127.0.0.1:1"),
        heartbeat=HeartbeatSettings(_secret(tmp_path / "url", service.url)),
    )


def test_a_pass_from_cron_is_told_like_one_of_a_daemon(service: Service, store: Store, clock: JumpingClock, tmp_path: Path) -> None:
    def tick() -> list[Incident]:
        return [store.incident(Night(store, clock).fails("1"))]

    assert [one.id for one in pass_once(tick, _once(tmp_path, service), store)] == [1]
    assert sorted(service.asked) == ["GET /ping/s3cret", "POST /hook"]
    assert "nightshift_leader 1.0" in (tmp_path / "n.prom").read_text()
    pass_once(list, _once(tmp_path, service), store)
    assert len(store.watches()) == 1, "however many processes made them"


@pytest.mark.parametrize("error", [Unavailable("squeue did not answer"), ZeroDivisionError()], ids=["unavailable", "bug"])
def test_a_pass_from_cron_that_failed_is_no_sign_of_life(
    service: Service, store: Store, clock: JumpingClock, tmp_path: Path, error: Exception
) -> None:
    def tick() -> list[Incident]:
        raise error

    with pytest.raises(type(error)):
        pass_once(tick, _once(tmp_path, service), store)
    assert service.asked == []
    (found,) = store.watches()
    assert found.whole_at is None
    assert found.trouble == (str(error) or "the pass was broken off",)


def test_blind_passes_from_cron_add_up(service: Service, store: Store, clock: JumpingClock, tmp_path: Path) -> None:
    def tick() -> list[Incident]:
        raise Unavailable("squeue did not answer")

    pass_once(list, _once(tmp_path, service), store)
    for _ in range(6):
        clock.sleep(120)
        with pytest.raises(Unavailable):
            pass_once(tick, _once(tmp_path, service), store)
    assert [row.outcome for row in store.audit() if row.what == "watch.blind"] == ["on"]
    assert service.asked.count("POST /hook") == 1
