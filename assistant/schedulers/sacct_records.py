"""Which lines of `sacct --parsable2` make one record, where users wrote newlines and whole rows into the texts of their jobs. Pure.

Slurm prints a name as it is. A record that was broken over lines is put together again where its fields then are as many as they
should be, and nothing is guessed where they are not. A name that holds whole rows makes none: what stands between the parts of its
record belongs to that. Only where nobody could know the mark between fields beforehand is every record sure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_PARTS = 8192
"""Lines of one record."""
BEGINS_RECORD = r"^\s*[0-9]"
"""What begins a record whose first column is an id."""
USERS_TEXTS = {"jobname": 1024, "comment": 1024, "workdir": 4096, "submitline": 8192, "account": 1024}
"""Columns in which users may write newlines, and their bytes. Source: slurmctld, job_mgr.c, _validate_job_desc; PATH_MAX."""
LEAST_RECORD = 20
"""Bytes of a record that would be counted: an id, a state, two times; and one for each mark."""


class OddLine(NamedTuple):
    """A line that is no whole record, or does not begin with the id of a job where it should."""

    row: int
    marks: int
    begins: bool
    """Whether a record may begin with it."""


class SplitRecord(NamedTuple):
    """Lines over which a newline in a text of a user broke a record."""

    first: int
    last: int
    is_complete: bool
    """Whether it is sure that these lines are its parts; else all of them are left out."""


def reach_of(columns: Sequence[str]) -> int:
    """Return over how many lines whole records inside one text of a user can reach; names of columns are in small letters."""
    size = sum(size for column, size in USERS_TEXTS.items() if column in columns)
    return max(2, size // (len(columns) + LEAST_RECORD))


def split_records(lines: Sequence[OddLine], marks: int, reach: int) -> list[SplitRecord]:
    """Return the records that are broken over lines, in their order.

    A line that is too short begins one. The lines right behind it complete it where they have all marks that it lacks and nothing
    is left over. Else it ends with the line that has as many marks as it lacks, or more and no id; what stands between belongs to
    it, whole lines too, for whoever named the job may have written them. Where nothing ends it, no line within reach is sure.

    Args:
        lines: Odd lines by their rows.
        marks: Between the fields of a whole record.
        reach: Lines that a text of a user can hold.
    """
    records: list[SplitRecord] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        if line.marks < marks and line.begins:
            record, place = _record_from(lines, place, marks, reach)
            records.append(record)
            continue
        if records and line.row - records[-1].first <= reach:
            # a line too many for the record before: which of them are its parts, nobody can tell
            records[-1] = SplitRecord(records[-1].first, line.row, is_complete=False)
        place += 1
    return records


def _record_from(lines: Sequence[OddLine], place: int, marks: int, reach: int) -> tuple[SplitRecord, int]:
    """Return the record that a line begins, and the place behind its last odd line."""
    first, lacking, count = lines[place].row, marks - lines[place].marks, 0
    for after in range(place + 1, min(len(lines), place + MOST_PARTS)):
        count += lines[after].marks
        if lines[after].row != first + after - place or count > lacking:
            break
        if count == lacking:
            return SplitRecord(first, lines[after].row, is_complete=True), after + 1
    after = place + 1
    while after < len(lines) and lines[after].row - first <= reach:
        line = lines[after]
        after += 1
        if line.marks == lacking or (line.marks > lacking and not line.begins):
            return SplitRecord(first, line.row, is_complete=False), after
    return SplitRecord(first, first + reach, is_complete=False), after
