"""What was saved after a device failed is suspect, and is called so with the newest from before it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.records import Checkpoint, Citation, NodeFinding
from assistant.recover.situation import fault_time, suspect_words
from tests.daemon.night import diagnosis

AT = datetime(2026, 11, 27, 9, 34, 41, tzinfo=UTC)
KERNEL = "2026-11-27T10:34:41,382414+01:00 NVRM: Xid (PCI:0000:c8:00): 48, pid=12, name=python3, DBE (double bit error)"


def saved(step: int, after_s: float, *, healthy: bool = True) -> Checkpoint:
    return Checkpoint(Path(f"/r/w_{step}.npz"), step, "plain", 9, AT + timedelta(seconds=after_s), healthy, ())


def test_what_was_saved_behind_the_fault_is_suspect() -> None:
    told = replace(diagnosis(), root_cause=(), nodes=(NodeFinding("gpu001", f"a GPU of it computes wrong: {KERNEL}"),))
    fault = fault_time(told)
    assert fault == AT
    words = suspect_words([saved(60, -12), saved(75, -6), saved(90, 1), saved(105, 7), saved(120, 12)], fault)
    assert words == (
        "Saved after the fault of 09:34:41 UTC, and suspect: w_105.npz, w_120.npz; the newest whole one from before it is "
        "/r/w_90.npz (step 90)."
    )
    assert suspect_words([saved(60, -12)], fault) == ""
    assert "none is from before it" in suspect_words([saved(60, 12)], fault)


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-27T09:34:41+00:00 NVRM: Xid (PCI:0000:c8:00): 31, pid=12, MMU fault",
        "NVRM: Xid (PCI:0000:c8:00): 48, pid=12",
        "2026-11-27T09:34:41+00:00 mce: corrected ECC error",
        "2026-99-99T99:99:99Z NVRM: Xid (PCI:0000:c8:00): 48",
        "Xid" * 5000,
    ],
)
def test_a_fault_of_the_program_or_a_line_without_a_time_makes_nothing_suspect(line: str) -> None:
    assert fault_time(replace(diagnosis(), root_cause=(Citation("dmesg.log", 8, line, "xid", "root"),))) is None
    assert fault_time(None) is None
