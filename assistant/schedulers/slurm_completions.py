"""Ended jobs from the completion log (`jobcomp/filetxt`), for a cluster without accounting. Pure, but for the reading of the file.

Slurm writes a name as it is, newlines included, so a line is believed only where no name can have written it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

from assistant.records import Job
from assistant.schedulers.slurm_jobs import SlurmRow, end_of, folder_of, nodes_of
from assistant.schedulers.slurm_text import moment, owner_of, pairs
from assistant.untrusted import read_end

logger = logging.getLogger(__name__)

READ_BYTES = 64 << 20
"""Of a completion log, from its end."""
FINISHED_KEYS = (
    "JobId",
    "UserId",
    "JobState",
    "Partition",
    "StartTime",
    "EndTime",
    "NodeList",
    "WorkDir",
    "SubmitTime",
    "ArrayJobId",
    "ArrayTaskId",
    "DerivedExitCode",
    "ExitCode",
)


_NAME_BEGINS = re.compile(r"\sName=")


def finished_rows(text: str, job_id: str) -> list[SlurmRow]:
    """Return the attempts of a job in the completion log (`jobcomp/filetxt`), oldest first.

    A name may hold whole lines: those between a line that ends within its name and the line that ends that record belong to it and
    are left out with it. Of a name that holds the end of its own record as well nobody can tell; the accounting has no such gap.

    Args:
        text: The log, or the end of it.
        job_id: Plain, or `18_3` for a task of an array.
    """
    rows: list[SlurmRow] = []
    for line in _finished_records(text):
        # the name is the only free text in front of the other keys
        begin, end = _NAME_BEGINS.search(line), line.rfind(" JobState=")
        name = line[begin.end() : end] if begin and begin.end() <= end else ""
        bare = line[: begin.start()] + line[end:] if begin and begin.end() <= end else line
        values = pairs(bare, FINISHED_KEYS)
        # a folder's name is free text as well: where a key stands twice, one of them was written by a user
        if "JobId" not in values or any(f" {bare}".count(f" {key}=") > 1 for key in FINISHED_KEYS):
            continue
        task = values.get("ArrayTaskId", "")
        shown_id = f"{values['ArrayJobId']}_{task}" if task.isdecimal() and "ArrayJobId" in values else values["JobId"]
        if shown_id == job_id:
            rows.append(_finished_row(values, shown_id, name, len(rows)))
    return rows


MOST_BROKEN = 16384
"""Signs of a record of the completion log: a name and a folder of at most 1,024 and 4,096 bytes, and what Slurm adds."""


def _finished_records(text: str) -> list[str]:
    """Return the records of a completion log, without those inside a record that a newline in its name broke over lines."""
    records: list[tuple[int, str]] = []
    offset = 0
    parts: list[str] = []
    parts_at, is_forged = 0, False
    last_key = " ExitCode=" if " ExitCode=" in text else " JobState="
    for line in text.split("\n"):
        begins, ends = line.startswith("JobId="), " JobState=" in line and last_key in line
        if parts and offset - parts_at > MOST_BROKEN:
            parts = []
        if begins and ends and not parts:
            records.append((offset, line))
        elif begins and ends:
            is_forged = True  # the name or the folder that broke the record before may have written this one
        elif begins and not parts:
            parts, parts_at, is_forged = [line], offset, False
        elif ends:
            # of the record that broke, else of one before, and which lines between are records, nobody can tell
            is_certain = bool(parts) and not is_forged and (not records or records[-1][0] < parts_at)
            earliest = parts_at if parts else offset - MOST_BROKEN
            while records and records[-1][0] >= earliest:
                records.pop()
            if is_certain:
                records.append((parts_at, "\n".join([*parts, line])))
            parts = []
        elif parts:
            parts.append(line)
        offset += len(line) + 1
    return [record for _, record in records]


def _finished_row(values: Mapping[str, str], job_id: str, name: str, earlier: int) -> SlurmRow:
    end = end_of(values.get("JobState", ""), values.get("ExitCode", ""), "")
    name_of_owner, _, number = values.get("UserId", "").partition("(")
    owner = owner_of(name_of_owner, number.rstrip(")"))
    job = Job(
        id=job_id,
        name=name,
        user=owner,
        account=owner,
        state=end.state,
        partition=values.get("Partition", ""),
        nodes=nodes_of(values.get("NodeList", "")),
        log=None,
        work_dir=folder_of(values.get("WorkDir", "")),
        submitted=moment(values.get("SubmitTime", "")),
        started=moment(values.get("StartTime", "")),
        ended=moment(values.get("EndTime", "")),
        exit_code=end.exit_code,
        signal=end.signal,
        attempt=earlier,
    )
    return SlurmRow(job, values["JobId"], "", "")


def end_of_log(path: Path) -> str:
    """Return the end of a completion log, empty where it cannot be read."""
    try:
        return read_end(path, READ_BYTES).raw.decode("utf-8", "replace")
    except OSError as error:
        logger.info("completion log %s cannot be read: %s", path, error.strerror)
        return ""
