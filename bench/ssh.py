"""One command on 64 real sshd nodes: our transport against asyncssh, clush and pdsh, in one run and in turns.

    python -m bench.ssh [--nodes 64] [--rounds 9] [--home FOLDER]

Nodes and sshd share this machine, so all figures hold the nodes' own work as well; a loaded machine slows everybody alike, which
is why they take turns and the best of all rounds counts. Limits: kept connections at most 1.2 x the best peer that keeps its own,
new connections at most 1.2 x asyncssh. The cluster comes from $NIGHTSHIFT_DEVCLUSTER, else ../shared/devcluster/devcluster; it is
brought up for the run and taken down, or taken as it stands with --home.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench._ssh_peers import Peer, peers

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.2
COMMAND = ("true",)


def devcluster() -> Path:
    """Return where the program that makes the nodes is looked for."""
    return Path(os.environ.get("NIGHTSHIFT_DEVCLUSTER") or ROOT.parent / "shared" / "devcluster" / "devcluster")


@contextmanager
def cluster(nodes: int, home: str) -> Iterator[Path]:
    """Give the ssh_config of a cluster of sshd nodes."""
    if home:
        yield Path(home) / "ssh" / "config"
        return
    with tempfile.TemporaryDirectory(prefix="nsb", dir="/tmp") as folder:
        tool = [str(devcluster()), "--home", f"{folder}/c"]
        subprocess.run([*tool, "up", "--ssh-only", "--nodes", str(nodes)], check=True, stdin=subprocess.DEVNULL)
        try:
            yield Path(folder) / "c" / "ssh" / "config"
        finally:
            subprocess.run([*tool, "down"], check=True, stdin=subprocess.DEVNULL)


def measured(takers: Sequence[Peer], nodes: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round, by name; everybody has one turn in each round."""
    seconds: dict[str, list[float]] = {peer.name: [] for peer in takers}
    for _ in range(rounds):
        for peer in takers:
            start = time.perf_counter()
            reached = peer.ask(COMMAND)
            seconds[peer.name].append(time.perf_counter() - start)
            if reached != nodes:
                raise RuntimeError(f"{peer.name}: {reached} of {nodes} nodes answered")
            time.sleep(0.05)  # sshd of the last turn clears up
    return seconds


def report(seconds: dict[str, list[float]], missing: Sequence[str]) -> int:
    """Print the figures and return 1 when one is over its limit."""
    best = {name: min(values) for name, values in seconds.items()}
    for name, values in sorted(seconds.items(), key=lambda pair: best[pair[0]]):
        print(f"{name:26} best {best[name]:6.3f} s  median {statistics.median(values):6.3f} s  of {len(values)}")
    for name in missing:
        print(f"not installed, not measured: {name}")
    over = 0
    kept = {name: value for name, value in best.items() if not name.startswith("nightshift") and not name.endswith(" new")}
    new = {name: value for name, value in best.items() if name == "asyncssh new"}
    for ours, rivals in (("nightshift kept", kept), ("nightshift new", new)):
        if rivals:
            rival = min(rivals, key=lambda name: rivals[name])
            ratio = best[ours] / rivals[rival]
            middle = statistics.median(seconds[ours]) / statistics.median(seconds[rival])
            over += ratio > LIMIT
            print(f"{ours} / {rival}: {ratio:.2f} (medians {middle:.2f}), limit {LIMIT}")
    return 1 if over else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--home", default="", help="a cluster that is up already")
    options = parser.parse_args(arguments)
    if not options.home and (os.geteuid() or not devcluster().is_file()):
        print(f"no cluster: it needs root and {devcluster()}; set NIGHTSHIFT_DEVCLUSTER")
        return 0
    with cluster(options.nodes, options.home) as config:
        names = [line.split()[1] for line in config.read_text().splitlines() if line.startswith("Host ") and "*" not in line]
        nodes = [name for name in names if name != "ctl"][: options.nodes]
        takers, missing = peers(config, nodes)
        started = []
        try:
            for peer in takers:
                started.append(peer)
                peer.start()
            measured(takers, len(nodes), 1)
            return report(measured(takers, len(nodes), options.rounds), missing)
        finally:
            for peer in started:
                peer.stop()


if __name__ == "__main__":
    raise SystemExit(main())
