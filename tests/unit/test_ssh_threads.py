"""Several threads use a new transport at once, as the worlds of a collective test do."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.config import SshSettings
from assistant.transports.ssh import SshTransport

THREADS = 8


@pytest.fixture
def often() -> Iterator[None]:
    """Let threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("often")
def test_no_thread_sees_settings_of_ssh_that_were_not_read_yet(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("".join(f"Host node{n}\n    HostName 10.0.0.{n}\n" for n in range(100)))
    seen: list[str] = []
    for _ in range(60):
        transport, start = SshTransport(SshSettings(config=config)), threading.Barrier(THREADS)

        def look(transport: SshTransport = transport, start: threading.Barrier = start) -> None:
            start.wait()
            transport._prepare()
            seen.append(transport._hosts.route("node7")[-1].hostname)

        threads = [threading.Thread(target=look) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        transport.close()
    assert set(seen) == {"10.0.0.7"}
