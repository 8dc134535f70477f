"""Be the service: passes until SIGTERM or SIGINT, with new settings after SIGHUP.

A reload is a new start of the same process. The new settings, policy and content are checked by `nightshift config check` first,
and what is wrong with them is said while the old ones go on. Then the calls that are being made are finished and the program is
executed anew under the same process id: it is the same owner, so it goes on leading, and nothing of the old settings is left.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from assistant import processes
from assistant.config import Settings
from assistant.daemon.loop import Watchdog
from assistant.daemon.pass_reports import beats_of
from assistant.daemon.systemd import Systemd
from assistant.engine import Engine
from assistant.engine.lease import owner_name
from assistant.policy import short_digest

logger = logging.getLogger(__name__)

CHECK_S = 60.0


def serve(settings: Settings, engine: Engine, *, options: Sequence[str], program: Sequence[str]) -> None:
    """Watch until told to stop; returns when the last call is finished.

    Args:
        settings: That hold now.
        engine: Built from them, with an approver that parks.
        options: Global options of this command, for the check and the new start: `--config FILE`.
        program: The command that runs Nightshift, as words.
    """
    owner = owner_name("watch")
    beats = beats_of(settings, engine.store, owner=owner, in_force=engine.gate.in_force)
    dog = Watchdog(engine, owner, settings.watch.poll_s, beats)
    signals: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        signals.append(number)
        dog.stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    policy = engine.gate.in_force.look()
    logger.info("watches every %g s as %s, mode %s", settings.watch.poll_s, owner, policy.mode)
    if policy.problem:
        logger.error("policy: cannot be obeyed, every change is refused until it is whole: %s", policy.problem)
    logger.info("policy: digest %s, from %s", short_digest(policy.digest), ", ".join(map(str, policy.files)) or "no file")
    try:
        while True:
            dog.run()
            if signal.SIGHUP not in signals or len(set(signals)) > 1:
                return
            signals.clear()
            if _right([*program, *options]):
                _restart([*program, *options, "watch"], [beat for beat in beats if isinstance(beat, Systemd)])
            dog = Watchdog(engine, owner, settings.watch.poll_s, beats)
    finally:
        dog.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        logger.info("the watch has ended")


def _right(program: Sequence[str]) -> bool:
    """Tell whether the new settings, policy and content are right; what is wrong is logged."""
    try:
        check = processes.run(
            [*program, "config", "check"],
            environment=processes.own_environment(),
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.error("the new settings could not be checked, the old ones stay: %s", error)
        return False
    if check.returncode:
        logger.error("the new settings are wrong, the old ones stay: %s", check.stderr.strip())
    return check.returncode == 0


def _restart(command: Sequence[str], systemd: Sequence[Systemd]) -> NoReturn:
    """Execute the program anew; the store, the leadership and the incidents' leases wait for it."""
    for speaker in systemd:
        speaker.reloading()
    logger.info("reads its settings again")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    processes.replace_itself(command)
