"""What Slurm lets Nightshift see and change here, for `nightshift doctor`: asked without changing anything."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from assistant.errors import NightshiftError
from assistant.schedulers.slurm import SlurmScheduler
from assistant.schedulers.slurm_run import DRAIN_RIGHTS, OLDEST, me


class RightsCheck(NamedTuple):
    """One line of the doctor."""

    works: bool
    text: str
    todo: str = ""


def check(slurm: SlurmScheduler) -> Iterator[RightsCheck]:
    """Yield what there is: version, accounting, what may be changed, the controller's log.

    Raises:
        Unavailable: The controller did not answer.
    """
    config = slurm.config()
    yield _version(config["SLURM_VERSION"])
    yield from _accounting(slurm)
    yield _rights(slurm)
    try:
        slurm.controller_log()
        yield RightsCheck(True, "the controller's log can be read")
    except NightshiftError as error:
        yield RightsCheck(
            False, f"no lines of the controller in diagnoses: {error}", "set slurm.controller_log where it can be read"
        )


def _version(text: str) -> RightsCheck:
    match = re.match(r"(\d+)\.(\d+)", text)
    is_tested = match is not None and (int(match.group(1)), int(match.group(2))) >= OLDEST
    return RightsCheck(
        is_tested, f"version {text}", "" if is_tested else "Slurm before 22.05 is not tested: watch what `nightshift jobs` shows"
    )


def _accounting(slurm: SlurmScheduler) -> Iterator[RightsCheck]:
    history, config = slurm.history, slurm.config()
    if not history.accounted:
        match = re.match(r"\d+", config.get("MinJobAge", ""))
        minutes = f"{int(match.group()) / 60:g} min" if match else "a few minutes"
        todo = "without slurmdbd let Nightshift run all the time"
        yield RightsCheck(False, f"no accounting: ended jobs are known for {minutes}", todo)
        return
    missing = [flag for flag in ("job_script", "job_env", "job_comment") if not history.stores(flag)]
    text = f"accounting keeps ended jobs{'; it does not keep ' + ', '.join(missing) if missing else ', scripts and environments'}"
    todo = f"AccountingStoreFlags={','.join(missing)} in slurm.conf lets older jobs be submitted again as they were"
    yield RightsCheck(not missing, text, todo if missing else "")


def _rights(slurm: SlurmScheduler) -> RightsCheck:
    user = me()
    job_rights = f"jobs of {user} can be ended and submitted again"
    wrapper = list(slurm.settings.admin)
    if wrapper:
        return _wrapped(slurm, wrapper, job_rights)
    if os.geteuid() == 0 or slurm.config().get("SlurmUser", "").startswith(f"{user}("):
        return RightsCheck(True, "all jobs and nodes can be changed")
    level = ""
    if slurm.history.accounted:
        words = ("--noheader", "--parsable2", "show", "user", f"user={user}", "format=user,adminlevel")
        level = slurm.commands.run("sacctmgr", *words).out.strip().partition("|")[2]
    if level == "Administrator":
        return RightsCheck(True, "all jobs and nodes can be changed (AdminLevel Administrator)")
    return RightsCheck(False, f"{job_rights}; nodes cannot be drained", DRAIN_RIGHTS)


def _wrapped(slurm: SlurmScheduler, wrapper: list[str], job_rights: str) -> RightsCheck:
    """Ask sudo, where that is the wrapper, whether it would let us, without doing anything."""
    prefix = " ".join(wrapper)
    if Path(wrapper[0]).name != "sudo":
        return RightsCheck(True, f"{job_rights}; nodes are changed by {prefix} scontrol, which was not tried")
    completed = slurm.commands.run("scontrol", "update", "NodeName=x", before=[*wrapper, "-l"])
    if completed.status:
        return RightsCheck(
            False,
            f"{job_rights}; {prefix} scontrol is not allowed: {completed.error_text}",
            "see docs/slurm.md for the line of sudoers",
        )
    return RightsCheck(True, f"{job_rights}; nodes are changed by {prefix} scontrol")
