"""How much host memory a job asked for, what it held at most, and what to ask for next, as the option of its own submission.

The limit stands in its options and `#SBATCH` lines, its peak in the accounting (MaxRSS, a sample: the last moment may have been
higher) and in the line by which Slurm ended it. How much it would have taken stands nowhere: the proposal is a next try.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.ports import MeasuresMemory
from assistant.records import Action, Diagnosis, Job
from assistant.watch.outages import MOST_CHARACTERS

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

HOST_LIMIT = re.compile(
    r"oom[-_]kill|\bOOM Killed\b|[Mm]emory cgroup out of memory|exceeded (?:job )?memory limit|Exceeded job memory limit"
    r"|: Out [Oo]f [Mm]emory\b|\bOUT_OF_MEMORY\b|OutOfMemory\b.{0,40}\bstate\b",
)
"""Lines of Slurm and the kernel about a job's limit of host memory; those about a GPU's memory read otherwise."""
_WHOLE_HOST = re.compile(r"(?<!cgroup )\b[Oo]ut of memory: Kill(?:ed)? process|CONSTRAINT_NONE|global_oom")
_JOB_LIMIT = re.compile(
    r"[Mm]emory cgroup out of memory|CONSTRAINT_MEMCG|[Ee]xceeded (?:job )?memory limit|oom[-_]kill event|Some of the step tasks"
)
"""Lines about a limit, beside those about a host as a whole, whose own process the kernel ended."""
OF_A_GPU = re.compile(r"CUDA|HIP|\bGPU\b|device memory|torch\.OutOfMemoryError|RESOURCE_EXHAUSTED")
_PASSED = re.compile(r"exceeded memory limit \((\d{2,18}) > (\d{2,18})\)")
_OPTION = re.compile(r"(?:^|\s)(--mem(?:-per-cpu|-per-gpu)?)[= ]\s*(\d{1,12})(?:\.\d{1,6})?([KMGT]?)B?(?=\s|$)", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1.0, "": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
"""Slurm counts memory without a unit in MiB."""
TWICE_UP_TO_MIB = 16 * 1024
"""Up to here twice as much is asked for next, above it half as much again."""
_TASK = re.compile(r"\d{1,18}_(\d{1,18})")


class MemoryRequest(NamedTuple):
    """What a job asked for by one option."""

    option: str
    mib: float
    words: str
    """The amount as it was written: `160M`."""


def memory_request(script: str, options: Iterable[str]) -> MemoryRequest | None:
    """Return how a job asked for memory; its submission's words outrank the script's lines. None where none says it."""
    lines = " ".join(line[7:].partition(" #")[0] for line in script.splitlines() if line.startswith("#SBATCH"))
    for words in (" ".join(options), lines):
        matches = [match for match in _OPTION.finditer(words) if int(match[2])]
        if matches:
            option, number, unit = matches[-1].groups()
            return MemoryRequest(option.lower(), int(number) * _MIB[unit.upper()], f"{number}{unit}")
    return None


def passed_limit(texts: Iterable[str], limit_mib: float | None) -> float | None:
    """Return how many MiB lines say that a job held as it was ended for more than its limit; None where they say none.

    Slurm has counted in bytes or KiB: the unit is the one in which its limit is the one that was asked for.
    """
    for text in texts:
        match = _PASSED.search(text[:MOST_CHARACTERS])
        if match is None or limit_mib is None:
            continue
        for per_mib in (1024.0 * 1024, 1024.0, 1.0):
            if math.isclose(int(match[2]) / per_mib, limit_mib, rel_tol=0.05):
                return int(match[1]) / per_mib
    return None


def next_amount(request_mib: float, peak_mib: float | None) -> str:
    """Return how much to ask for next, as Slurm takes it: twice as much, of much half as much again, above its peak."""
    factor = 2.0 if request_mib <= TWICE_UP_TO_MIB else 1.5
    amount_mib = max(request_mib * factor, (peak_mib or 0.0) * 1.5)
    if amount_mib < 4 * 1024:
        return f"{math.ceil(amount_mib / 10) * 10}M"
    return f"{math.ceil(amount_mib / 1024)}G"


def request_words(job: Job, texts: Sequence[str], peak_mib: float | None) -> str:
    """Return what to ask for next, of what a job asked for and held at most; empty where neither is known. Pure.

    Args:
        job: With its spec.
        texts: The lines that prove that it met its limit.
        peak_mib: Its MaxRSS by the accounting; None where that is not known.
    """
    if job.spec is None:
        return ""
    request = memory_request(job.spec.script, job.spec.options)
    passed = passed_limit(texts, request.mib if request is not None else None)
    peak = max(filter(None, (passed, peak_mib)), default=None)
    task = _TASK.fullmatch(job.id)
    alone = f"--array={task[1]} " if task is not None else ""
    task_words = ", for this task of the array alone" if task is not None else ""
    if request is None:
        if peak is None:
            return ""
        peak_words = f"It held {_words(peak)} at most (MaxRSS), under the limit that the partition gives a job that asks for none"
        return f"{peak_words}: ask for {alone}--mem={next_amount(peak, None)}{task_words}."
    peak_words = ""
    if peak is not None and (request.option == "--mem" or passed is not None):
        peak_words = f"; it held {_words(peak)} as far as was measured"
    option = f"{alone}{request.option}={next_amount(request.mib, peak if request.option == '--mem' else None)}"
    unsure = "Whether that is enough is not known: it was ended as it passed its limit."
    return f"It had asked for {request.option}={request.words}{peak_words}: try {option}{task_words}. {unsure}"


def is_of_host_alone(texts: Sequence[str]) -> bool:
    """Tell whether lines show that the whole host's memory was used up, and none that a limit of the job was met. Pure."""
    heads = [text[:MOST_CHARACTERS] for text in texts]
    return any(map(_WHOLE_HOST.search, heads)) and not any(map(_JOB_LIMIT.search, heads))


def with_memory_request(engine: EnginePort, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return memory of a host that ran out with the amount to ask for next; as it is where a GPU's did, or a stranger took it."""
    texts = [cited.text for cited in diagnosis.root_cause]
    is_host = any(HOST_LIMIT.search(text[:MOST_CHARACTERS]) for text in texts)
    is_gpu = any(OF_A_GPU.search(text[:MOST_CHARACTERS]) for text in texts[:1])
    if diagnosis.reason != "out_of_memory_error" or job is None or not is_host or is_gpu:
        return diagnosis
    if diagnosis.action is not Action.FIX_AND_RESUBMIT or not job.state.ended:
        return diagnosis
    if is_of_host_alone(texts):
        return diagnosis
    words = request_words(job, texts, peak_mib(engine, job))
    return replace(diagnosis, advice=f"{words} {diagnosis.advice}") if words else diagnosis


def peak_mib(engine: EnginePort, job: Job) -> float | None:
    """Return the most MiB that one step of a job held, as far as it was sampled; None where that is not kept."""
    if not isinstance(engine.scheduler, MeasuresMemory):
        return None
    try:
        peak = engine.scheduler.peak_memory_bytes(job.id)
    except (ToolError, Unavailable):
        return None
    return peak / 2**20 if peak else None


def _words(mib: float) -> str:
    return f"{mib / 1024:,.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"
