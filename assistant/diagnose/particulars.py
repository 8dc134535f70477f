"""What exactly has to change: a reason's general remedy gives way to what the lines of this case name.

Templates of knowledge/advice.toml and code_advice.toml quote paths, settings, expressions and peers. What wants arithmetic is in
`gpu_memory` and `standing`; where the code raised it is in `raising`, what came before in `beforehand`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.content.advice import Advice
from assistant.content.reasons import Reason
from assistant.diagnose.beforehand import look_first
from assistant.diagnose.divergence import never_learned, spike_of
from assistant.diagnose.facts import Facts
from assistant.diagnose.gpu_memory import memory_advice
from assistant.diagnose.raising import Origin, message_of, origin_of, raised_at
from assistant.diagnose.slots import slots_of
from assistant.diagnose.standing import saved, spike_account, standing, waiting_account
from assistant.diagnose.wording import DEEDS
from assistant.records import Action, Category, Citation, Diagnosis

AROUND = 40
"""Lines before and behind the cited one that may fill a template."""
MESSAGE_LINES = 8
"""Of a message of several lines, those that a template may match."""
NEVER_FINITE = (
    "Loss or gradient norm were NaN or infinite from the first step that was logged, so no checkpoint of this run helps: go back "
    "to the one that it started from, and change learning rate, precision, loss scale or data before it starts again."
)
NEVER_LEARNED = "The loss never fell: {first:.4g} at the first steps, {lowest:.4g} at its lowest behind them."
OWN_SETTING = (
    "Neither data nor a checkpoint of this run helps, for each was saved while it diverged: lower the learning rate, warm up "
    "longer, or check precision and loss, before it starts again from its begin."
)
PREEMPTED = (
    "The scheduler took its nodes for another job. See first whether it puts the job back into the queue itself; if not, submit it "
    "again with the option that goes on from the last healthy checkpoint, for the same command as before may begin anew."
)
LAST_CHECKPOINT = "from the last healthy checkpoint"
SHOWN_OF_MESSAGE = 320
_LATER = ("CUDA error", "HIP error", "NCCL", "KeyboardInterrupt", "Cuda error", "CUDA Error")
"""Words of errors that show at whatever call comes next."""
_NO_REFUSAL = ("killed", "exited", "onnection", "imed out", "CUDA")
"""Words of messages by which a library tells of something else than what it was handed."""
_NO_PLACE = frozenset(
    {"cancelled", "time_limit", "preempted", "no_failure", "unknown", "killed", "hang", "loss_spike", "dataloader_killed"}
)


class _Words(NamedTuple):
    text: str
    wall: bool = False
    """Whether a restart would meet the same again."""


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
    words = _by_reason(found, facts) or next(_quoted(found, facts, entries), None)
    if words is not None and words.wall and found.action in (Action.RESTART_SAME_NODES, Action.WAIT_AND_RETRY):
        found = replace(found, action=Action.FIX_AND_RESUBMIT)
        deed = DEEDS[found.action]
    if found.reason == "preempted" and facts.case.job is None:
        deed = PREEMPTED
    parts = [with_checkpoint(deed, facts), words.text if words else "", _place(found, facts, words), standing(found, facts)]
    if not any(parts[1:3]) and deed != PREEMPTED and not (found.reason == "time_limit" and parts[3]):
        parts[1] = _remedy(found, reason)
    return replace(found, advice=" ".join(_once([*parts, look_first(found, facts)])))


def _once(parts: Sequence[str]) -> Iterator[str]:
    """Yield the parts that say something that none before has said, each ended."""
    before = ""
    for part in parts:
        if part and part not in before:
            yield part if part.endswith((".", "…", "!", "?")) else f"{part}."
            before += part


def _by_reason(found: Diagnosis, facts: Facts) -> _Words | None:
    """Return what wants arithmetic over the whole case; None where it has nothing to count."""
    text = ""
    if found.reason == "loss_spike":
        text = spike_account(found, facts)
    elif found.reason == "nccl_timeout_error":
        text = waiting_account(facts)
    for cited in found.root_cause[:2]:
        text = text or memory_advice(cited, facts)
    return _Words(text) if text else None


def _remedy(found: Diagnosis, reason: Reason) -> str:
    """Return the general remedy; of a device error that a person has to mend no word about restarts."""
    if found.reason == "cuda_error" and found.action is Action.FIX_AND_RESUBMIT:
        return "Run it once with CUDA_LAUNCH_BLOCKING=1: then the traceback ends at the call that the device refused."
    return reason.remedy


def with_checkpoint(deed: str, facts: Facts) -> str:
    """Return the deed with the checkpoint that the log shows, or with the word that it shows none."""
    if LAST_CHECKPOINT not in deed or facts.case.job is not None or not facts.lines:
        return deed
    return f"{deed} {saved(facts)}"


def _quoted(found: Diagnosis, facts: Facts, entries: Sequence[Advice]) -> Iterator[_Words]:
    """Yield what the first cited line that says enough asks for."""
    fitting = [entry for entry in entries if found.reason in entry.reasons or not entry.reasons]
    for cited in found.root_cause[:3]:
        near = _near(cited, facts)
        origin = origin_of(cited, facts)
        slots = slots_of(found, cited, origin, facts, raised_at(cited, facts))
        for line in message_of(cited, facts)[:MESSAGE_LINES]:
            for entry in fitting:
                if text := entry.fill(line, near, slots):
                    yield _Words(text, entry.wall)
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


def _place(found: Diagnosis, facts: Facts, words: _Words | None) -> str:
    """Return where it was raised and what stands there, as far as it is not said; with the message where no remedy is known."""
    if found.reason == "cuda_error" and not found.nodes and found.root_cause:
        return _noticed_at(found.root_cause[0], facts)
    if found.category is Category.INFRASTRUCTURE or found.reason in _NO_PLACE or not found.root_cause:
        return ""
    cited = found.root_cause[0]
    origin = origin_of(cited, facts)
    if origin is None or any(word in cited.text for word in _LATER):
        return ""
    if words is not None:
        return "" if origin.place in words.text or not origin.own else f"{_raised_from(origin)}."
    message = " ".join(message_of(cited, facts)[:MESSAGE_LINES])
    message = message if len(message) <= SHOWN_OF_MESSAGE else f"{message[:SHOWN_OF_MESSAGE]}…"
    return _unknown_message(origin, message.rstrip(".?! "))


def _noticed_at(cited: Citation, facts: Facts) -> str:
    """Return the job's own call at which a device error showed: the kernel that made it is that call's, or of one before."""
    origin = origin_of(cited, facts)
    if origin is None or not origin.own:
        return ""
    where = origin.place + (f" in {origin.function}()" if origin.function.isidentifier() else "")
    return f"It showed at {where}; the call that made it is this one or one before."


def _raised_from(origin: Origin) -> str:
    where = origin.place + (f" in {origin.function}()" if origin.function.isidentifier() else "")
    at = f"{where}, where the code says `{origin.code}`" if origin.code and origin.own else where
    return f"Raised from {at}" if origin.own else f"Raised inside {origin.library or 'a library'}, at {at}"


def _unknown_message(origin: Origin, message: str) -> str:
    """Return who refused what, for a message that no template knows."""
    if origin.own and origin.library and not any(word in message for word in _NO_REFUSAL):
        refused = f"{origin.library} refuses what the job hands it: {message}."
        return f"{refused} Change that call or what goes into it. {_raised_from(origin)}."
    if origin.code.startswith("raise ") and origin.own:
        return f"The program's own check says what it wants: {message}. Change that; the check is at {origin.place}."
    return f"No remedy is known for this message; it says: {message}. {_raised_from(origin)}."
