"""Notifications through Apprise, against a web server and a mail server of this machine; masks; files of addresses."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from assistant.config.settings import About, Severity
from assistant.daemon.delivery import Services, masked, urls_of
from assistant.daemon.notifications import Notice
from assistant.errors import ConfigError, Unavailable
from assistant.redact import Mask
from tests.daemon.http_here import HttpHere

NOTICE = Notice(7, About.ESCALATED, Severity.CRITICAL, "job 1 needs a person: ecc_error", "on node042\nto do: <look>", "esc:1")


class Web(HttpHere):
    """A web server that keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.status = 200
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                web.paths.append(self.path)
                web.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(web.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(Handler)


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.close()


class _Mail(socketserver.StreamRequestHandler):
    """As much of SMTP as a sender needs."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line.split()[0].upper()
            if word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            if word == b"RCPT":
                self.server.to.append(line.decode().strip())  # type: ignore[attr-defined]
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append(text.decode())  # type: ignore[attr-defined]
            self.wfile.write(b"250 ok\r\n")


@pytest.fixture
def mail() -> Iterator[Any]:
    server = socketserver.TCPServer(("127.0.0.1", 0), _Mail)
    server.mails, server.to = [], []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def services(*urls: str, timeout_s: float = 5.0) -> Services:
    return Services("ops", urls, cluster="hopper", timeout_s=timeout_s)


def test_a_webhook_gets_the_notice_with_its_weight_and_fingerprint(web: Web) -> None:
    services(f"json://127.0.0.1:{web.port}/hook").send(NOTICE)
    (body,) = web.bodies
    assert body["title"] == "[hopper] job 1 needs a person: ecc_error"
    assert body["type"] == "failure"
    assert body["message"] == "on node042\nto do: <look>\nid: esc:1"


def test_a_mail_reaches_its_addressee_whole(mail: Any) -> None:
    port = mail.server_address[1]
    services(f"mailto://127.0.0.1:{port}?from=nightshift@hopper.example&to=oncall@hopper.example&mode=insecure&format=text").send(
        NOTICE
    )
    (text,) = mail.mails
    assert "Subject: [hopper] job 1 needs a person: ecc_error" in text
    assert "on node042" in text
    assert [line for line in mail.to if "oncall@hopper.example" in line]


def test_an_owner_stands_in_the_address_only_under_a_plain_name(mail: Any, web: Web) -> None:
    port = mail.server_address[1]
    to = services(f"mailto://127.0.0.1:{port}?from=n@hopper.example&to={{owner}}@hopper.example&mode=insecure")
    for owner in ("ada", "x@evil.example,boss", "../../etc", "", "a?to=b"):
        to.send(Notice(1, About.OWNER, Severity.WARNING, "your job failed", "text", "f", owner=owner))
    assert [line.partition(":")[2] for line in mail.to] == ["<ada@hopper.example>"]


def test_a_service_that_refuses_or_is_gone_is_unavailable(web: Web) -> None:
    web.status = 500
    with pytest.raises(Unavailable, match=r"notify\.sinks\.ops"):
        services(f"json://127.0.0.1:{web.port}/hook").send(NOTICE)
    with pytest.raises(Unavailable):
        services("json://127.0.0.1:1/hook", timeout_s=1).send(NOTICE)


def test_a_service_that_says_nothing_is_given_up_after_the_deadline() -> None:
    import socket
    import time

    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(Unavailable):
            services(f"json://127.0.0.1:{silent.getsockname()[1]}/", timeout_s=0.3).send(NOTICE)
        assert time.monotonic() - began < 5


def test_a_url_that_is_none_is_named_without_what_it_holds() -> None:
    with pytest.raises(ConfigError, match=r"notify\.sinks\.ops: URL 2 \(slakc://…\)") as found:
        services("json://127.0.0.1/", "slakc://T0KEN/B/C")
    assert "T0KEN" not in str(found.value)


def test_no_secret_leaves_in_a_message(web: Web) -> None:
    from dataclasses import replace

    services(f"json://127.0.0.1:{web.port}/").send(replace(NOTICE, text="HF_TOKEN=hf_abcdefghijklmnopqrstuvwx"))
    assert "hf_abcdefghij" not in web.bodies[0]["message"]


def test_names_are_masked_for_a_service_that_is_not_the_sites_own(web: Web) -> None:
    mask = Mask(["node042"], ["ada"], key=b"k")
    send = masked(services(f"json://127.0.0.1:{web.port}/").send, lambda: mask)
    send(Notice(1, About.OWNER, Severity.WARNING, "your job on node042", "bob: see node043, ask ada", "f", owner="bob"))
    text = f"{web.bodies[0]['title']}\n{web.bodies[0]['message']}"
    assert not any(name in text for name in ("node042", "node043", "ada", "bob"))
    assert mask.show(text).startswith("[hopper] your job on node042\nbob: see node043, ask ada")


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("json://x/\n", 0o644, "can be read by everybody"),
        ("# only a comment\n\n", 0o600, "holds no URL"),
        (None, 0o600, "cannot be read"),
    ],
    ids=["open", "empty", "missing"],
)
def test_a_file_of_addresses_that_will_not_do_says_why(tmp_path: Path, text: str | None, mode: int, says: str) -> None:
    path = tmp_path / "urls"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"notify\.sinks\.x\.url_file: .*{says}"):
        urls_of(path, "notify.sinks.x.url_file")


def test_a_file_of_addresses_holds_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "urls"
    path.write_text("# the chat\njson://a/\n\n  json://b/  \n")
    path.chmod(0o600)
    assert urls_of(path, "x") == ["json://a/", "json://b/"]
