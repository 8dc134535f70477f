"""What exactly has to change: a reason's general remedy gives way to what the lines of this case name.

Templates of knowledge/advice.toml quote paths, settings, versions and peers. What wants arithmetic or the frames of a traceback
is here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assistant.content.advice import Advice
from assistant.content.reasons import Reason
from assistant.diagnose.facts import Facts
from assistant.diagnose.tracebacks import Frame
from assistant.records import Category, Citation, Diagnosis

AROUND = 40
"""Lines before and behind the cited one that may fill a template."""
NEVER_FINITE = (
    "Loss or gradient norm were NaN or infinite from the first step that was logged, so no checkpoint of this run helps: go back "
    "to the one that it started from, and change learning rate, precision, loss scale or data before it starts again."
)
_UNITS = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
_SIZE = r"(\d[\d.]{0,11}) ([KMGT])i?B"
_WANTED = re.compile(rf"[Tt]ried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capacity of {_SIZE} of which {_SIZE} is free|{_SIZE} total capacity;.{{0,80}}?{_SIZE} free")
_GPU = re.compile(r"\bGPU (\d{1,3})\b")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_OTHER = re.compile(rf"Process (\d{{1,10}}) has {_SIZE} memory in use")
_RESERVED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_FOREIGN_GIB = 1.0
"""Memory of a GPU that others hold, from which on it is worth a word."""
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3|^<|^/usr/lib|\.venv/lib|/miniconda3/lib/|importlib")


def with_particulars(found: Diagnosis, facts: Facts, reason: Reason | None, entries: Sequence[Advice]) -> Diagnosis:
    """Return a diagnosis whose advice says what this case shows; where it shows nothing more, the diagnosis as it is."""
    if reason is None or not found.advice.endswith(reason.remedy):
        return found
    specific = next(_quoted(found, facts, entries), reason.remedy)
    deed = found.advice.removesuffix(reason.remedy).strip()
    if found.reason == "loss_spike" and _never_finite(facts):
        deed, specific = "", NEVER_FINITE
    return replace(found, advice=" ".join(words for words in (deed, specific, *_place(found, facts)) if words))


def _quoted(found: Diagnosis, facts: Facts, entries: Sequence[Advice]) -> Iterator[str]:
    """Yield what the first cited line that says enough asks for."""
    fitting = [entry for entry in entries if found.reason in entry.reasons or not entry.reasons]
    for cited in found.root_cause[:3]:
        near = _near(cited, facts)
        said = _memory(cited.text) if found.reason == "out_of_memory_error" else ""
        said = said or next((words for entry in fitting if (words := entry.fill(_body(cited.text, facts), near))), "")
        if said:
            yield said
            return


def _body(text: str, facts: Facts) -> str:
    return facts.streams.body(text).text.strip()


def _near(cited: Citation, facts: Facts) -> list[str]:
    """Return the lines of the same stream around a cited one, nearest first."""
    if cited.file != "job.log":
        return [cited.text]
    stream = facts.streams.body(cited.text).stream
    lines = [
        (line.number, facts.streams.body(line.text)) for line in facts.between(max(1, cited.line - AROUND), cited.line + AROUND)
    ]
    same = [(abs(number - cited.line), body.text) for number, body in lines if body.stream == stream]
    return [_body(cited.text, facts), *(text for _, text in sorted(same, key=lambda pair: pair[0]))]


def _never_finite(facts: Facts) -> bool:
    """Tell whether no logged step had a finite loss and a finite gradient norm."""
    logged = [[value for value in (point.loss, point.grad_norm) if value is not None] for point in facts.points]
    return any(logged) and not any(values and all(map(math.isfinite, values)) for values in logged)


def _gib(number: str, unit: str) -> float:
    try:
        return float(number) * _UNITS[unit]
    except ValueError:
        return 0.0


def _memory(text: str) -> str:
    """Return what the account of a GPU's memory in PyTorch's message asks for; empty where it gives none."""
    wanted, total = _WANTED.search(text), _TOTAL.search(text)
    if wanted is None or total is None:
        return ""
    sizes = [group for group in total.groups() if group is not None]
    whole, free = _gib(*sizes[:2]), _gib(*sizes[2:4])
    gpu = _GPU.search(text)
    account = f"GPU {gpu[1]} has" if gpu else "The GPU has"
    sentence = f"{account} {whole:.1f} GiB, of which {free:.2f} GiB were free when {wanted[1]} {wanted[2]}iB more were wanted."
    own, others = _OWN.search(text), _OTHER.findall(text)
    held = _gib(own[1], own[2]) if own else 0.0
    foreign = sum(_gib(*other[1:]) for other in others) or (whole - free - held if own else 0.0)
    reserved = _RESERVED.search(text)
    if foreign > max(_FOREIGN_GIB, whole / 10):
        who = f"processes {', '.join(other[0] for other in others[:4])}" if others else "other processes"
        return f"{sentence} About {foreign:.1f} GiB are held by {who}: end them, or see that each process takes a GPU of its own."
    if reserved and _gib(*reserved.groups()) > _gib(*wanted.groups()):
        return (
            f"{sentence} {reserved[1]} {reserved[2]}iB are reserved but in pieces too small: set "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or lower the micro batch or the sequence length."
        )
    return f"{sentence} Lower the micro batch or the sequence length, recompute activations, or shard more."


def _place(found: Diagnosis, facts: Facts) -> Iterator[str]:
    """Yield where the job's own code raised it."""
    if found.category is Category.INFRASTRUCTURE:
        return
    for cited in found.root_cause[:1]:
        raised = next((r for e in facts.episodes for r in e.raised if cited.file == "job.log" and r.line == cited.line), None)
        frame = _own_frame(raised.frames) if raised is not None else None
        if frame is not None and frame.line:
            yield f"Raised from {frame.file}:{frame.line}" + (f" in {frame.function}()." if frame.function.isidentifier() else ".")


def _own_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of code that is no installed library."""
    return next((frame for frame in reversed(frames) if not _LIBRARY.search(frame.file)), None)
