"""The chat through a real `ssh -tt` to a real sshd: keys, a resize, the way out."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.ports import SystemClock
from assistant.records import Event, EventKind
from assistant.store import Store
from tests.tui.in_tmux import TMUX, Screen
from tests.unit import sshd_here
from tests.unit.sshd_here import SSHD

MISSING = [name for name, found in (("tmux", TMUX), ("sshd", SSHD), ("ssh", shutil.which("ssh"))) if found is None]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}: make deps-chat"),
    pytest.mark.timeout(180),
]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    """A chat on the other side of ssh, with an incident in its store."""
    home = tmp_path / "there"
    home.mkdir()
    with Store(home / "nightshift.db", SystemClock()) as store:
        store.open_incident(Event(EventKind.JOB_ENDED, "4821", None, SystemClock().now()))
    sshd = sshd_here.make(tmp_path / "sshd")
    sshd.start()
    own = [f"{name}={home}" for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")]
    chat = [sys.executable, "-m", "assistant", "--store", str(home / "nightshift.db"), "chat"]
    there = f"cd {shlex.quote(str(ROOT))} && {shlex.join(['env', *own, 'LC_ALL=C.UTF-8', *chat])}"
    trusted = ("-F", "/dev/null", "-i", sshd.ssh / "id_ed25519", "-o", f"UserKnownHostsFile={sshd.ssh / 'known_hosts'}")
    found = Screen(tmp_path, "ssh", "-tt", *map(str, trusted), "-p", str(sshd.port), "127.0.0.1", there)
    yield found
    found.close()
    sshd.stop()


def test_the_chat_is_used_over_ssh(screen: Screen) -> None:
    wide = screen.until("1 incident")
    assert "What happened" in wide
    assert "Ask, or / for commands" in wide
    screen.keys("w", "h", "y")
    screen.until("why")

    # Ctrl+C empties the line instead of ending ssh; a function key opens what is wrong
    screen.keys("C-c")
    screen.until("Ask, or / for commands")
    screen.keys("F2", "Enter")
    screen.until(lambda text: "incident 1" in text and "job 4821" in text and "No diagnosis yet" in text)
    screen.resize(80, 24)
    screen.until(lambda text: len(text.splitlines()) <= 24 and "No diagnosis yet" in text)
    screen.keys("Escape")
    # the first screen may be drawn for a moment as it was before the resize
    screen.until(lambda text: ("Incidents" in text or "Ask, or / for commands" in text) and "What happened" not in text)
    screen.resize(200, 50)
    screen.keys("Escape")
    screen.until(lambda text: "What happened" in text and max(map(len, text.splitlines())) > 150)

    screen.keys("C-q")
    assert screen.left() == "0"
