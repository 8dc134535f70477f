"""`nightshift notify` and what the doctor says of those who are told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def hook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook's Apprise URL, and what it took."""
    took: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            took.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"json://127.0.0.1:{server.server_port}/", took
    server.shutdown()
    server.server_close()
    thread.join()


def configured(home: Path, **urls: str) -> Path:
    lines = []
    for name, url in urls.items():
        path = home / f"{name}.url"
        path.write_text(url)
        path.chmod(0o600)
        lines.append(f'[notify.sinks.{name}]\nurl_file = "{path}"\n')
    config = home / "c.toml"
    config.write_text("".join(lines) + "[notify]\ntimeout_s = 1\n")
    return config


def test_a_trial_message_arrives_and_one_that_does_not_is_an_error(
    cli: Run, home: Path, hook: tuple[str, list[dict[str, Any]]]
) -> None:
    config = configured(home, fine=hook[0], gone="json://127.0.0.1:1/")
    said = cli("--config", config, "notify")
    assert said.code == 1
    assert said.out.splitlines()[0] == "fine: taken"
    assert said.out.splitlines()[1].startswith("gone: notify.sinks.gone: the service did not take")
    assert "If you read this" in hook[1][0]["message"]
    assert cli("--config", config, "notify", "fine", "--json").objects == [
        {"schema": 1, "sink": "fine", "taken": True, "error": ""}
    ]


def test_a_sink_that_is_not_there_is_named_with_the_nearest(cli: Run, home: Path) -> None:
    said = cli("--config", configured(home, oncall="json://127.0.0.1:1/"), "notify", "oncal")
    assert said.code == 2
    assert "did you mean oncall?" in said.err
    assert cli("notify").code == 2


def test_the_doctor_names_who_is_told_and_an_address_that_is_wrong(cli: Run, home: Path) -> None:
    def found(config: Path) -> dict[str, Any]:
        return next(one for one in cli("--config", config, "doctor", "--json").objects if one["name"] == "notify")

    assert found(configured(home, oncall="json://127.0.0.1:1/"))["text"] == "told: oncall"
    wrong = found(configured(home, oncall="slakc://secret"))
    assert wrong["health"] == "fail"
    assert "secret" not in wrong["text"]
