"""Name the cause of one traceback: of its chain of exceptions, the one that an expert would write down.

The last exception is often a wrapper (`DatasetGenerationError`), the first often mere control flow (a `KeyError` of a cache). So
each is weighed by what is known about it: a signature for its message counts more than its class, a class of the operating system
more than one of control flow, and what was raised `from` another is explained by that other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.content.reasons import Reason, Role, Signature
from assistant.diagnose.classes import Meaning, meaning
from assistant.diagnose.readers.tracebacks import Episode, Raised

_CONTROL_FLOW = {
    "KeyError",
    "AttributeError",
    "IndexError",
    "StopIteration",
    "ImportError",
    "ModuleNotFoundError",
    "TypeError",
    "ValueError",
    "LookupError",
}
_OFTEN_A_SYMPTOM = "connection_error"
"""What a rank prints of another that is gone, in the same words and of the same class as a cause."""
_SLIPS = {"TypeError", "NameError", "UnboundLocalError", "AttributeError"}
"""Slips in a line of source that hardly ever runs, such as one that reports an error."""
SLIP_LINES = 12
"""Lines of source from a call that failed to the line of its handler that slips."""
SLIP, REPORTED = 0.4, 0.65
"""What is left of the weight of a slip, and the least weight of the exception that its handler was to report."""
_WRAPPED = re.compile(r"(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{1,80}(?:Error|Exception)): (?P<message>.*)")
"""How a wrapper quotes the exception that it wraps: `InductorError: CalledProcessError: Command ...`."""
_OF_WRAPPERS = "runtime_error"
_FROM_OUTSIDE = {"called_process_error", "file_not_found_error", "permission_error", "out_of_memory_error", "import_error"}
"""What the environment of a program refuses, whichever part of the program passes that on."""
_COUNTS = {Role.ROOT: 1.0, Role.SYMPTOM: 0.7, Role.CASCADE: 0.5, Role.CONFIRMATION: 0.5}


class Judged(NamedTuple):
    """What one traceback speaks for."""

    reason: str
    weight: float
    role: Role
    rule: str
    line: int
    text: str
    signature: Signature | None
    more: tuple[tuple[int, str], ...]


def bare(signature: Signature) -> bool:
    """Tell whether a signature knows no more than the class of an exception; by convention its id ends with `.class`."""
    return signature.id.endswith(".class")


def judge(episode: Episode, signatures: Mapping[int, Sequence[Signature]], known: Mapping[str, Reason]) -> Judged:
    """Return what a traceback speaks for.

    Args:
        episode: With at least one exception.
        signatures: Signatures by number of the line that they match.
        known: The reasons, for their lists of exception classes.
    """
    judged = [_one(raised, signatures, known) for raised in episode.raised]
    best = max(range(len(judged)), key=lambda at: (_score(episode.raised, judged, at), at))
    cause = judged[best]
    reported = best + 1 < len(judged) and is_slip(episode.raised, best + 1)
    more = [(raised.line, raised.text) for raised in reversed(episode.raised) if raised.line != cause.line]
    weight = max(cause.weight, REPORTED) if reported else cause.weight
    return cause._replace(weight=weight, more=(*cause.more, *more))


def _score(chain: Sequence[Raised], judged: Sequence[Judged], at: int) -> float:
    score = judged[at].weight * _COUNTS.get(judged[at].role, 0.2)
    final = at == len(chain) - 1
    if final:
        return score * (0.95 if chain[at].cause else SLIP if is_slip(chain, at) else 1.0)
    explains = chain[at + 1].cause
    if chain[at].short in _CONTROL_FLOW and not explains:
        return score * 0.55
    return score


def is_slip(chain: Sequence[Raised], at: int) -> bool:
    """Tell whether an exception is a slip in the handler of the one before it: that one is what the handler was to report.

    The handler stands in the function whose call had failed, a few lines below that call.
    """
    if at == 0 or chain[at].short not in _SLIPS or chain[at - 1].short in _CONTROL_FLOW:
        return False
    failed, slip = chain[at - 1].frames[:1], chain[at].frames[-1:]
    return any(
        (call.file, call.function) == (own.file, own.function) and 0 < own.line - call.line <= SLIP_LINES
        for call in failed
        for own in slip
    )


def _wrapped(raised: Raised, reasons: Mapping[str, Reason]) -> Meaning | None:
    """Return what the exception speaks for that an exception quotes as its message, where the environment refused something."""
    match = _WRAPPED.match(raised.message)
    if match is None:
        return None
    inner = meaning(replace(raised, name=match["name"], message=match["message"]), reasons)
    return inner if inner.reason in _FROM_OUTSIDE else None


def _one(raised: Raised, signatures: Mapping[int, Sequence[Signature]], known: Mapping[str, Reason]) -> Judged:
    wrapped = _wrapped(raised, known)
    fallback = wrapped or meaning(raised, known)
    best: tuple[float, int, str, Signature] | None = None
    for number, text in ((raised.line, raised.text), *raised.more):
        for signature in signatures.get(number, ()):
            if signature.role in (Role.TEARDOWN, Role.BENIGN, Role.RECOVERED) or bare(signature):
                continue
            if wrapped is not None and signature.id.startswith(f"{_OF_WRAPPERS}."):
                continue
            value = signature.weight * (1.0 if number == raised.line else 0.97)
            if best is None or value > best[0]:
                best = value, number, text, signature
    by_number = fallback.rule.startswith("errno")
    same = best is not None and best[3].id.partition(".")[0] == fallback.reason
    if best is None or (best[0] < fallback.weight and by_number and not same):
        return Judged(fallback.reason, fallback.weight, fallback.role, fallback.rule, raised.line, raised.text, None, ())
    value, number, text, signature = best
    more = ((raised.line, raised.text),) if number != raised.line else ()
    reason = signature.id.partition(".")[0]
    if (
        fallback.rule.endswith(("loading weights", "building the data set"))
        and signature.weight < 0.75
        and signature.role is Role.ROOT
    ):
        reason = fallback.reason
    role = signature.role
    if same and reason != _OFTEN_A_SYMPTOM and fallback.role is Role.ROOT and fallback.weight > value * _COUNTS.get(role, 0.2):
        # words that may stand in a mere notice are the exception's own here
        value, role = max(value, fallback.weight), fallback.role
    return Judged(reason, value, role, signature.id, number, text, signature, more)
