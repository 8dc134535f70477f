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
from assistant.diagnose.divergence import never_learned, spike_of
from assistant.diagnose.facts import Facts
from assistant.diagnose.tracebacks import Frame
from assistant.diagnose.wording import DEEDS
from assistant.records import Action, Category, Citation, Diagnosis

AROUND = 40
"""Lines before and behind the cited one that may fill a template."""
NEVER_FINITE = (
    "Loss or gradient norm were NaN or infinite from the first step that was logged, so no checkpoint of this run helps: go back "
    "to the one that it started from, and change learning rate, precision, loss scale or data before it starts again."
)
NEVER_LEARNED = "The loss never fell: {first:.4g} at the first steps, {lowest:.4g} at its lowest behind them."
OWN_SETTING = (
    "Neither data nor a checkpoint of this run helps, for each was saved while it diverged: lower the learning rate, warm up "
    "longer, or check precision and loss, before it starts again from its begin."
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
LIBRARY = re.compile(
    r"(?:^|[/\\])(?:site|dist)-packages[/\\]|[/\\][Ll]ib(?:64)?[/\\](?:python)?3?|^<|\.p(?:yx|xi|xd)$|importlib|(?:^|/)(?:uvloop|asyncio)/"
    r"|/(?:torch|transformers|accelerate|deepspeed|vllm|sglang|megatron|datasets|pytorch_lightning|lightning|ray)/\w[\w/]*\.py$"
)
_LATER = re.compile(r"CUDA error|HIP error|NCCL|KeyboardInterrupt", re.IGNORECASE)
_NO_PLACE = frozenset({"cancelled", "time_limit", "preempted", "no_failure", "unknown", "out_of_memory_error", "killed", "hang"})
LAST_CHECKPOINT = "from the last healthy checkpoint"
SHOWN_OF_SAVE, SHOWN_OF_MESSAGE, MOST_OF_SOURCE, MOST_OF_LINE = 200, 320, 120, 1000
_SAVED = re.compile(
    r"\b(?:sav(?:ed|ing)|wrote|writing|stored)\b.{0,60}\b(?:check-?points?|ckpt|model|weights|state)|\b(?:check-?point|model|state)s?\b.{0,40}"
    r"\b(?:saved|written|stored)\b|[Ss]aving .{0,40}checkpoint-\d",
    re.IGNORECASE,
)
_NOT_SAVED = re.compile(r"\bnot\b|fail|error|will be|every \d|interval|skip", re.IGNORECASE)


def with_particulars(found: Diagnosis, facts: Facts, reason: Reason | None, entries: Sequence[Advice]) -> Diagnosis:
    """Return a diagnosis whose advice says what this case shows; where it shows nothing more, the diagnosis as it is."""
    if reason is None or not found.advice.endswith(reason.remedy):
        return found
    deed = found.advice.removesuffix(reason.remedy).strip()
    if found.reason == "loss_spike" and _never_finite(facts):
        return replace(found, advice=NEVER_FINITE)
    if (
        found.reason == "loss_spike"
        and (spike := spike_of(facts)) is not None
        and (levels := never_learned(facts, spike)) is not None
    ):
        said = NEVER_LEARNED.format(first=levels[0], lowest=levels[1])
        return replace(found, action=Action.FIX_AND_RESUBMIT, summary=f"{found.summary} {said}", advice=f"{said} {OWN_SETTING}")
    quoted, wall = next(_quoted(found, facts, entries), ("", False))
    if wall and found.action in (Action.RESTART_SAME_NODES, Action.WAIT_AND_RETRY):
        found = replace(found, action=Action.FIX_AND_RESUBMIT)
        deed = DEEDS[found.action]
    place = _place(found, facts)
    if place and not quoted:
        quoted = f"No remedy is known for this message; it says: {_message(found.root_cause[0], facts)}."
    specific = " ".join(words for words in (quoted, place) if words) or _remedy(found, reason)
    return replace(found, advice=" ".join(words for words in (with_checkpoint(deed, facts), specific) if words))


def _remedy(found: Diagnosis, reason: Reason) -> str:
    """Return the general remedy; of a device error that a person has to mend no word about restarts."""
    if found.reason == "cuda_error" and found.action is Action.FIX_AND_RESUBMIT:
        return "Run it once with CUDA_LAUNCH_BLOCKING=1: then the traceback ends at the call that the device refused."
    return reason.remedy


def with_checkpoint(deed: str, facts: Facts) -> str:
    """Return the deed with the checkpoint that the log shows, or with the word that it shows none."""
    if LAST_CHECKPOINT not in deed or facts.case.job is not None or not facts.lines:
        return deed
    saves = [line for line in facts.lines if _SAVED.search(line.text[:MOST_OF_LINE]) and not _NOT_SAVED.search(line.text)]
    if saves:
        last = saves[-1]
        return f"{deed} The last save that the log shows: job.log:{last.number}: {_shortened(last.text.strip(), SHOWN_OF_SAVE)}."
    return f"{deed} The log shows no save: where there is none, it begins at the start."


def _quoted(found: Diagnosis, facts: Facts, entries: Sequence[Advice]) -> Iterator[tuple[str, bool]]:
    """Yield what the first cited line that says enough asks for, and whether a restart would meet the same again."""
    fitting = [entry for entry in entries if found.reason in entry.reasons or not entry.reasons]
    for cited in found.root_cause[:3]:
        near = _near(cited, facts)
        if found.reason == "out_of_memory_error" and (account := _memory(cited.text)):
            yield account, False
            return
        for entry in fitting:
            if words := entry.fill(_body(cited.text, facts), near):
                yield words, entry.wall
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
    """Tell whether no logged step had a loss or gradient norm that was a number; an average of no losses is 0."""
    logged = [value for point in facts.points for value in (point.loss, point.grad_norm) if value is not None]
    spike = spike_of(facts)
    lost = any(not math.isfinite(value) for value in logged) or (spike is not None and math.isnan(spike.level))
    return lost and not any(math.isfinite(value) and value for value in logged)


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


def _place(found: Diagnosis, facts: Facts) -> str:
    """Return where the job's own code raised it, and what stands there; else which library did."""
    if found.category is Category.INFRASTRUCTURE or found.reason in _NO_PLACE or not found.root_cause:
        return ""
    cited = found.root_cause[0]
    raised = next((r for e in facts.episodes for r in e.raised if cited.file == "job.log" and r.line == cited.line), None)
    if raised is None or _LATER.search(cited.text):
        return ""  # an error of the device shows at whatever call comes next
    chain = next(e.raised for e in facts.episodes if raised in e.raised)
    frames = [frame for one in (raised, *reversed(chain)) for frame in reversed(one.frames)]
    own = next((frame for frame in frames if not LIBRARY.search(frame.file) and frame.line), None)
    frame = own or next((frame for frame in reversed(raised.frames) if frame.line), None)
    if frame is None:
        return ""
    source = _source(frame, facts)
    where = f"{frame.file}:{frame.line}" + (f" in {frame.function}()" if frame.function.isidentifier() else "")
    at = f"{where}, where the code says `{source}`" if source else where
    return f"Raised from {at}." if own is not None else f"Raised inside a library, at {at}."


def _message(cited: Citation, facts: Facts) -> str:
    """Return a message with the lines that it goes on in: the first is often no more than a heading."""
    raised = next((r for e in facts.episodes for r in e.raised if r.line == cited.line), None)
    more = [_body(text, facts) for _, text in raised.more[:3]] if raised is not None else []
    return _shortened(" ".join([_body(cited.text, facts), *more]), SHOWN_OF_MESSAGE).rstrip(".")


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _source(frame: Frame, facts: Facts) -> str:
    """Return the line of source that a traceback shows behind a frame; empty where it shows none."""
    named, behind = facts.line(frame.at), facts.line(frame.at + 1)
    if named is None or behind is None:
        return ""
    head, body = facts.streams.body(named.text), facts.streams.body(behind.text)
    text = body.text.strip()
    plain = head.stream == body.stream and body.text[:1].isspace() and not text.startswith(("File ", "^", "~"))
    return _shortened(text, MOST_OF_SOURCE) if plain else ""
