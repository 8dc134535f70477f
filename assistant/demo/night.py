"""A night on a small cluster, for `nightshift demo --chat`: a job that will fail, and a watch that asks before each change.

The watch is a process of its own, as on a real cluster: the chat only shares its store and its scheduler. So may any other shell,
with `nightshift --config FOLDER/config.toml`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from assistant import processes
from assistant.config import Settings, load
from assistant.content.faults import Fault, find_fault
from assistant.content.reading import shipped
from assistant.demo.rehearsal import NODES, POLL_S, STEPS
from assistant.display import line
from assistant.engine.ownership import owner_name
from assistant.errors import NightshiftError
from assistant.ports import SystemClock
from assistant.schedulers.drill import arm, demo_job
from assistant.schedulers.local import LocalScheduler
from assistant.wiring import build, local_folder

ENDS_S = 20.0
"""How long the watch may take to end what it began."""
CONFIG = """\
scheduler = "local"
state_folder = "{folder}/state"
store = "{folder}/state/nightshift.db"
content = "{folder}/site"

[commands]
kernel_log = ["cat", "kernel.log"]

[watch]
poll_s = {poll_s}
hang_after_s = 8.0
hang_factor = 6.0
spike_patience_steps = 8
"""


def prepare(folder: Path) -> Settings:
    """Write the settings of a night into an empty folder, with a policy that asks before each change, and return them."""
    (folder / "site" / "knowledge").mkdir(parents=True)
    terms = (shipped("knowledge") / "policy.toml").read_text(encoding="utf-8")
    asking = terms.replace('mode = "observe"', 'mode = "propose"', 1)
    (folder / "site" / "knowledge" / "policy.toml").write_text(asking, encoding="utf-8")
    config = folder / "config.toml"
    config.write_text(CONFIG.format(folder=folder, poll_s=POLL_S), encoding="utf-8")
    return load({"HOME": str(folder)}, config=config).settings


@contextlib.contextmanager
def watched(fault: Fault, folder: Path) -> Iterator[None]:
    """Keep a job and the watch over it running beside the block; afterwards nothing runs any more."""
    command = [sys.executable, "-m", "assistant.demo.night", fault.name, str(folder)]
    errors = (folder / "watch.log").open("wb")
    started = processes.start(
        command, environment=processes.own_environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors
    )
    with errors, started as watch:
        try:
            yield
        finally:
            if watch.stdin is not None:
                watch.stdin.close()
            try:
                watch.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                watch.kill()


def keep_watch(fault: Fault, settings: Settings, run: Path, ended: threading.Event) -> None:
    """Submit the job that fails and look after it until `ended`; then end every job."""
    clock = SystemClock()
    cluster = LocalScheduler(local_folder(settings), clock, nodes=NODES)
    engine = build(settings, clock=clock, since=clock.now())
    spec = demo_job(run, steps=fault.steps or STEPS)
    arm(fault, cluster, spec)
    _ = engine.knowledge
    cluster.submit(spec)
    try:
        while not ended.wait(POLL_S):
            try:
                engine.tick(owner=owner_name("demo"))
            except NightshiftError as error:
                print(line(error), file=sys.stderr, flush=True)  # noqa: T201 - its stderr is a file of the demo's folder
    finally:
        for job in cluster.jobs():
            if not job.state.ended:
                cluster.cancel(job.id)
        engine.store.close()


def main(fault: str, folder: Path) -> None:
    """Be the watch until standard input ends."""
    ended = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    settings = load({"HOME": str(folder)}, config=folder / "config.toml").settings
    keep_watch(find_fault(fault), settings, folder / "run", ended)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
