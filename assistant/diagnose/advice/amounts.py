"""Turn a setting or limit that a log prints into the number to write in its place: half a batch, a third more memory.

A number is a proposal for the next start and not what the job needs: that stands in no log.
"""

from __future__ import annotations

import math
import re

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import Setting

MOST_LINES, MOST_OF_LINE = 2000, 400
MORE = 4 / 3
"""Times the memory of a job that reached its limit."""
SMALL_GIB, FEW_GIB, MANY_GIB = 32, 4, 16
"""Memory below which it is asked for in steps of the second number, and above which in steps of the third."""
_MEMORY = re.compile(
    r"(?P<option>--mem(?:-per-cpu|-per-gpu)?)[= ](?P<value>\d{1,7})(?P<unit>[KMGT]?)B?\b"
    r"|(?P<pbs>\bp?v?mem)=(?P<pbs_value>\d{1,7})(?P<pbs_unit>[kmgtKMGT])b?\b",
)
_GIB = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "": 1 / 1024}
"""Slurm counts memory without a unit in MiB."""
_OOM = re.compile(r"Detected \d{1,6} oom[-_]kill event|have been OOM Killed|\bOut of memory: Kill|\boom-kill:|\bOOMKilled\b")
_AT_START = re.compile(
    r"Free memory on device (\S{1,20} )?\(([\d.]{1,8})/([\d.]{1,8}) GiB\) on startup is less than desired GPU memory utilization "
    r"\(([\d.]{1,6})"
)
_SIZE = re.compile(r"(\d[\d.]{0,17}) ?([KMGT])i?[Bb]?", re.IGNORECASE)


def oom_record(facts: Facts) -> str:
    """Return where the log of the last attempt records a kill for want of memory, as `job.log:9`; empty where it does not."""
    lines = (line for line in facts.lines if line.number >= facts.progress.leg)
    record = next((line for line in lines if _OOM.search(line.text[:MOST_OF_LINE])), None)
    return f"job.log:{record.number}" if record is not None else ""


def lowered(value: Setting) -> str:
    """Return a setting with half of its value behind it, as `batch_size 32 (job.log:4) to 16`."""
    return f"{value} to {max(1, int(value.value) // 2)}" if value.value.isdigit() and int(value.value) > 1 else str(value)


def memory_to_ask_for(facts: Facts, limit: str = "") -> str:
    """Return how much host memory to ask for, beside what was asked for; empty where neither script nor message tell a limit.

    Args:
        facts: Of the case.
        limit: What a message says that the limit was, such as `46105.0 MB`.
    """
    for line in facts.lines[:MOST_LINES]:
        match = _MEMORY.search(line.text[:MOST_OF_LINE]) if "mem" in line.text[:MOST_OF_LINE] else None
        if match is None or int(match["value"] or match["pbs_value"]) == 0:
            continue
        if match["option"]:
            value, unit = match["value"], match["unit"]
            more = _more(int(value) * _GIB[unit])
            return f"{match['option']}={more}G in place of {value}{unit} (job.log:{line.number})"
        more = _more(int(match["pbs_value"]) * _GIB[match["pbs_unit"].upper()])
        return f"{match['pbs']}={more}gb in place of {match['pbs_value']}{match['pbs_unit']}b (job.log:{line.number})"
    size = _SIZE.fullmatch(limit.strip())
    return f"{_more(float(size[1]) * _GIB[size[2].upper()])}G in place of {limit.strip()}" if size is not None else ""


def taken_at_start(text: str, facts: Facts) -> str:
    """Return how much of each GPU others held as a server started, and the share that fits all; empty of another message."""
    if not _AT_START.search(text[: 2 * MOST_OF_LINE]):
        return ""
    lines = (line.text for line in facts.lines if line.number >= facts.progress.leg)
    texts = [line for line in lines if "Free memory on" in line[:MOST_OF_LINE]]
    matches = [match for each in (text, *texts) if (match := _AT_START.search(each[: 2 * MOST_OF_LINE])) is not None]
    starts = {(match[1] or "The GPU").strip(): (float(match[2]), float(match[3]), match[4]) for match in matches}
    device, (free, total, share) = min(starts.items(), key=lambda item: item[1][0] / (item[1][1] or 1.0))
    listed = f" ({', '.join(f'{name} {start[0]:g}' for name, start in sorted(starts.items()))} GiB)" if len(starts) > 1 else ""
    most = math.floor(free / total * 100) / 100 if total else 0.0
    condition = "the same on each of these GPUs" if len(starts) > 1 else "if the model still fits into that"
    return (
        f"{device} had {free:g} of {total:g} GiB free at the start, less than the share of {share} asks for{listed}: end what"
        f" else runs there (nvidia-smi), or set gpu_memory_utilization to at most {most:.2f}, {condition}."
    )


def _more(gib: float) -> int:
    """Return a third more, in steps that people ask for."""
    step = FEW_GIB if gib * MORE < SMALL_GIB else MANY_GIB
    return math.ceil(gib * MORE / step) * step
