"""The two stops of all changes: the kill switch, which a person sets, and the breaker, which opens by itself.

The kill switch is a file named by the policy; while one exists the gate refuses every change. Chat, command line and watch share
these functions, so that each change of a switch is in the audit with who and why. The breaker opens when many things go wrong at
once: then one more action is a guess.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.accounts import own_name
from assistant.errors import NightshiftError, UsageError
from assistant.policy import Breaker, Policy
from assistant.store import Store
from assistant.store.standing_decisions import Lately, count_lately, failures_by_user, last_period, open_breaker

__all__ = [
    "BY",
    "SwitchesLifted",
    "breaker_count",
    "kill_switch_note",
    "lift_kill_switch",
    "missing_folders",
    "open_if_due",
    "recent_failures",
    "set_kill_switch",
    "stopped_by",
    "too_much",
]

logger = logging.getLogger(__name__)

NOTE_BYTES = 4096
"""How much of a switch file is read for its note."""


class SwitchesLifted(NamedTuple):
    """Which kill switches were lifted, and which could not be."""

    lifted: tuple[Path, ...]
    """Files that were removed."""
    still_set: tuple[tuple[Path, str], ...]
    """Files that exist still, each with the reason; while there is one nothing is changed."""


def stopped_by(kill_switch: Iterable[Path]) -> str | None:
    """Return the kill switch file that exists, None when none does; one that cannot be looked at counts as set."""
    for path in kill_switch:
        try:
            # lstat: a dangling link was put there by somebody, and for that it counts as set
            path.lstat()
        except FileNotFoundError:
            lost_folder = _lost_folder(path)
            if lost_folder is None:
                continue
            return f"{path} (cannot be looked at: {lost_folder} is a link to nothing; so it counts as set)"
        except (OSError, ValueError) as error:
            return f"{path} (cannot be looked at: {getattr(error, 'strerror', error)}; so it counts as set)"
        return str(path)
    return None


def missing_folders(kill_switch: Sequence[Path]) -> list[Path]:
    """Return the switches that `touch` cannot set, since their folder does not exist; a vanished mount looks like that."""
    return [path for path in kill_switch if stopped_by((path,)) is None and not path.parent.is_dir()]


def _lost_folder(path: Path) -> Path | None:
    """Return the folder above a missing file that is a link to nothing, such as one to a mount that is away."""
    for folder in path.parents:
        if os.path.lexists(folder):
            return None if folder.exists() else folder
    return None


def kill_switch_note(path: str | Path) -> str:
    """Return the first line of a switch file (who, when, why), empty where there is none to read; never waits."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        text = os.read(handle, NOTE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(handle)
    return "".join(letter for letter in text.split("\n", 1)[0] if letter.isprintable())


def set_kill_switch(store: Store, policy: Policy, *, by: str, why: str = "", watched: Sequence[Path] = ()) -> Path:
    """Set the first kill switch of the policy that this account may write, and return it; one that is set already is returned.

    Args:
        store: Gets the audit row; a store that cannot be written does not keep the switch from being set.
        policy: Names the files.
        by: Who sets it, as in `Call.by`.
        why: Kept in the file and in the audit.
        watched: Switches that the leading watch looks at, where they are known: these are tried first.

    Raises:
        UsageError: The policy names no kill switch.
        NightshiftError: None could be written; the message has the reason for each.
    """
    if not policy.kill_switch:
        raise UsageError('the policy names no kill switch; add kill_switch = ["/etc/nightshift/stop"] to policy.toml')
    paths = sorted(policy.kill_switch, key=lambda path: path not in watched)
    for path in paths:
        if stopped_by((path,)) == str(path) and (path in watched or not watched):
            return path
    note = " ".join(f"{store.clock.now():%Y-%m-%dT%H:%M:%SZ} {by} on {os.uname().nodename}: {why or 'no reason given'}".split())
    failures: list[str] = []
    # a folder that exists is preferred to one that would have to be made
    for path in sorted(paths, key=lambda path: (path not in watched, not path.parent.is_dir())):
        try:
            _create(path, f"{note}\n")
        except FileExistsError:
            return path
        except OSError as error:
            failures.append(f"{path}: {error.strerror}")
            continue
        _audit(store, "kill_switch.set", by, why or "set by hand", [path])
        return path
    raise NightshiftError(
        f"no kill switch could be set by {own_name()}: {'; '.join(failures)}. "
        "Run it as the account that runs the watch, or as root: sudo nightshift stop"
    )


def lift_kill_switch(store: Store, policy: Policy, *, by: str, why: str = "") -> SwitchesLifted:
    """Remove every kill switch of the policy that is set and that this account may remove; nothing is set: both lists are empty.

    Raises:
        UsageError: The policy names no kill switch.
    """
    if not policy.kill_switch:
        raise UsageError("the policy names no kill switch, so none can be lifted")
    lifted: list[Path] = []
    still_set: list[tuple[Path, str]] = []
    for path in dict.fromkeys(policy.kill_switch):
        try:
            path.unlink()
        except OSError as error:
            if stopped_by((path,)) is not None:
                still_set.append((path, error.strerror or str(error)))
            continue
        lifted.append(path)
    if lifted:
        _audit(store, "kill_switch.lifted", by, why or "lifted by hand", lifted)
    return SwitchesLifted(tuple(lifted), tuple(still_set))


def _create(path: Path, text: str) -> None:
    if not path.parent.is_dir():
        # a folder in a home belongs to one account; one of the machine must let other accounts look for the switch
        private = path.is_relative_to(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
        path.parent.mkdir(parents=True, mode=0o700 if private else 0o755)
    # readable for all: a watch under another account, and people, see who stopped it and why
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.write(handle, text.encode("utf-8", "replace"))
    except OSError as error:
        # the empty file stops all changes as well
        logger.warning("%s is set, its note was not written: %s", path, error)
    finally:
        os.close(handle)


def _audit(store: Store, event: str, by: str, why: str, paths: Sequence[Path]) -> None:
    try:
        store.record(event, by=by, why=why, detail={"files": [str(path) for path in paths]})
    except NightshiftError as error:
        logger.error("%s by %s was not written to the audit: %s", event, by, error)


BY = "breaker"
"""In whose name it opens."""
_WORDS = {
    "machine_failures": "incidents were the machine's fault",
    "failed_actions": "actions failed or brought nothing back",
    "refused_actions": "actions were refused by a limit",
}


def too_much(lately: Lately, terms: Breaker) -> str:
    """Return why the breaker is to be opened, empty when it is not."""
    for field in dataclasses.fields(Breaker):
        most = getattr(terms, field.name)
        if most is not None and (count := breaker_count(lately, field.name, most)) >= most:
            return f"{count} {_WORDS[field.name]} within an hour; {most} open the breaker"
    return ""


def breaker_count(lately: Lately, name: str, most: int) -> int:
    """Return how many of one kind count for the breaker: of the jobs of one user a third of what opens it, at most.

    So nobody stops the changes for all others by jobs of their own that cannot be restarted.

    Args:
        lately: What the last hour saw.
        name: A field of `Breaker`.
        most: How many open the breaker.
    """
    counts = getattr(lately, name)
    if isinstance(counts, int):
        return counts
    return sum(min(count, max(1, most // 3)) if user else count for user, count in counts.items())


def recent_failures(store: Store) -> Mapping[str, int]:
    """Return how many changes for the jobs of each user failed, or brought nothing back, in the last hour and since a reset."""
    period = last_period(store)
    return failures_by_user(store, period.until if period is not None else None)


def open_if_due(store: Store, policy: Policy) -> bool:
    """Open it when the last hour was too much; False when it stays as it is: so where all is only observed."""
    if policy.only_observes or policy.breaker == Breaker():
        return False
    period = last_period(store)
    if period is not None and period.until is None:
        return False
    why = too_much(count_lately(store, period.until if period is not None else None), policy.breaker)
    if not why or not open_breaker(store, why=why, by=BY):
        return False
    logger.error("the breaker stops all changes: %s", why)
    return True
