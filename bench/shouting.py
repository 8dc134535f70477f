"""Nodes that print without end, over real SSH: what they cost this machine, and whether a quiet node among them is heard.

    python -m bench.shouting [--nodes 64]

All nodes are names of one sshd of this machine; all but one run `yes`, and that one is asked in the middle of it. Memory is the
highest resident size of this process during the round less that before it, in the same run. Limits: 200 MB more for 64 nodes, every
shouting node ended with `output`, the quiet one heard.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

from assistant.ports import Failure
from assistant.transports.ssh import SshTransport
from tests.unit.sshd_here import SSHD, make

MORE_MB = 200.0
QUIET = "node0"
LOOK_S = 0.002


def resident_mb() -> float:
    """Return the resident size of this process, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


class Peak(threading.Thread):
    """Watches the resident size of this process."""

    def __init__(self) -> None:
        """Begin with what it is now."""
        super().__init__(daemon=True)
        self.before = self.highest = resident_mb()
        self.ended = threading.Event()

    def run(self) -> None:
        """Look until it is ended."""
        while not self.ended.wait(LOOK_S):
            self.highest = max(self.highest, resident_mb())


def main() -> int:
    """Run it, print a line, and return whether a limit was passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    asked = parser.parse_args()
    if SSHD is None:
        print("shouting: there is no sshd here: apt-get install openssh-server", file=sys.stderr)
        return 1
    names = [f"node{number}" for number in range(asked.nodes)]
    with tempfile.TemporaryDirectory(prefix="nightshift-shouting-") as folder:
        sshd = make(Path(folder) / "home", "MaxSessions 200")
        sshd.start()
        try:
            where = f"\n  HostName 127.0.0.1\n  Port {sshd.port}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
            transport = sshd.transport("".join(f"Host {name}{where}  HostKeyAlias [127.0.0.1]:{sshd.port}\n" for name in names))
            transport.run(names, ["true"], timeout_s=60)  # connections are no part of it
            peak = Peak()
            peak.start()
            began = time.perf_counter()
            # the quiet one is another command: it runs in the middle of the shouting
            quiet: list[bool] = []
            asking = threading.Thread(target=lambda: quiet.append(_heard(transport)))
            asking.start()
            replies = transport.run(names[1:], ["yes", "shouting"], timeout_s=60)
            took_s = time.perf_counter() - began
            asking.join()
            peak.ended.set()
            peak.join()
        finally:
            sshd.stop()
    more_mb = peak.highest - peak.before
    ended = sum(reply.failure == Failure.OUTPUT for reply in replies.values())
    print(
        f"shouting nodes: {ended} of {len(replies)} ended with `output` in {took_s:.1f} s, {more_mb:.0f} MB more at the peak "
        f"(limit {MORE_MB:.0f}), a quiet node meanwhile {'heard' if quiet == [True] else 'NOT heard'}"
    )
    return int(more_mb > MORE_MB or ended < len(replies) or quiet != [True])


def _heard(transport: SshTransport) -> bool:
    time.sleep(0.2)
    return bool(transport.run([QUIET], ["echo", "heard"], timeout_s=60)[QUIET].out == "heard\n")


if __name__ == "__main__":
    sys.exit(main())
