"""Say where in the job's own code a failure was raised, and what stands there, as far as the advice does not say it.

Where no remedy is known it carries the message, without what was quoted of it as its demand.
"""

from __future__ import annotations

import re
from dataclasses import replace

from assistant.diagnose.advice.decisive import filled_fields
from assistant.diagnose.advice.demands import demand_of
from assistant.diagnose.advice.entry_words import MESSAGE_LINES, EntryWords, by_origin
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import BARE_EXCEPTION, LIBRARY, Origin, code_of, message_of, origin_of, raised_at
from assistant.records import Action, Category, Citation, Diagnosis

SHOWN_OF_MESSAGE = 400
_ASSERTS = re.compile(r"assert (.{3,120}?)(?:, ?f?['\"(].*)?$")
_STOP_LEFT = re.compile(
    r"^raise \w+\(\s*f?['\"]\W*(?:stop|debug|exit|here|done|test|break|todo|xxx+|asdf|quit|end|bye|ok|hi|hello)\W*['\"]\s*\)$",
    re.IGNORECASE,
)
_LATER = ("CUDA error", "HIP error", "NCCL", "KeyboardInterrupt", "Cuda error", "CUDA Error")
"""EntryWords of errors that show at whatever call comes next."""
OF_SERVICES = frozenset({"connection_error", "s3_storage_error"})
_HTTP = frozenset("requests urllib3 httpx httpcore aiohttp botocore boto3 s3fs fsspec huggingface_hub urllib http".split())
"""Packages by which a program asks a service."""
_NO_PLACE = frozenset(
    {"cancelled", "time_limit", "preempted", "no_failure", "unknown", "killed", "hang", "loss_spike", "dataloader_killed"}
)
REPEATED = 0.75
"""Share of the words of a message from which on a demand that has them makes the message a repetition."""
LONG_WORDS = re.compile(r"[\w.-]{3,}")
FEWEST_WORDS = 3
"""Long words of a message above which what stands before its request says why."""
_ANNOUNCING = re.compile(
    r"(?:(?:[Pp]lease|[Tt]ry(?: to)?|[Yy]ou (?:can|should|must|need to|may)|[Cc]onsider|[Oo]r|[Tt]hen|\b[Ss]o)[ :,]{0,3}){1,3}$"
)
_OF_FORM = frozenset("must has have had should needs not but got the are was were and".split())
"""EntryWords by which a message complains, and not of what."""


def with_message_line(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis that also cites the line on which the message begins, where its exception's own line is empty."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or not BARE_EXCEPTION.fullmatch(facts.streams.body(cited.text).text.strip()):
        return diagnosis
    exception = raised_at(cited, facts)
    line = next(((number, text) for number, text in exception[1].more if text.strip()), None) if exception is not None else None
    if line is None:
        return diagnosis
    words = cut(" ".join(line[1].split()), SHOWN_OF_MESSAGE)
    head = cited.text.strip()
    return replace(
        diagnosis,
        root_cause=(cited, Citation(cited.file, line[0], line[1], cited.rule), *diagnosis.root_cause[1:]),
        summary=diagnosis.summary.replace(head, f"{head} {words}", 1),
    )


def raising_place(diagnosis: Diagnosis, facts: Facts, words: EntryWords | None) -> str:
    """Return where it was raised and what stands there, as far as it is not said; with the message where no remedy is known."""
    if diagnosis.reason == "cuda_error" and not diagnosis.nodes and diagnosis.root_cause:
        return _noticed_at(diagnosis.root_cause[0], words, facts)
    if diagnosis.root_cause and (diagnosis.reason in OF_SERVICES or diagnosis.action is Action.WAIT_AND_RETRY):
        return _asked_at(diagnosis, facts, words)
    if diagnosis.category is Category.INFRASTRUCTURE or diagnosis.reason in _NO_PLACE or not diagnosis.root_cause:
        return ""
    cited, origin = by_origin(diagnosis, facts)[0]
    later = diagnosis.reason != "out_of_memory_error" and any(word in cited.text for word in _LATER)
    if origin is None or later:
        return ""
    if words is not None:
        return "" if origin.place in words.text or not origin.own else f"{_raised_from(origin)}."
    demand = demand_of(cited, facts)
    message = cut(_without(demand, " ".join(message_of(cited, facts)[:MESSAGE_LINES])), SHOWN_OF_MESSAGE).rstrip(".?! ")
    quoted = f": {message}" if message else ""
    demand_sentence = f"{demand.rstrip('.?! ')} ({cited.file}:{cited.line}). " if demand else ""
    if origin.own and (match := _ASSERTS.match(origin.code)):
        return f"{demand_sentence}`{match[1]}` has to hold at {_place_of(origin)} and does not{quoted}."
    if origin.own and origin.code.startswith(("raise ", "assert ")):
        return f"{demand_sentence}{_own_check(origin, '' if demand else message, cited, facts)}"
    if origin.own and origin.library and origin.code:
        return f"{demand_sentence}`{origin.code}` at {_place_of(origin)} hands {origin.library} what it refuses{quoted}."
    return f"{demand_sentence}{_raised_from(origin)}{quoted}."


def _own_check(origin: Origin, message: str, cited: Citation, facts: Facts) -> str:
    """Return what is known of a check that the job's own code raised by: a stop left over from debugging, values, who called it."""
    if _STOP_LEFT.search(origin.code):
        return f"It is a stop that somebody put there to look at something: take out `{origin.code}` at {_place_of(origin)}."
    values = ", ".join(f"{name} is {value}" for name, value in filled_fields(origin.code, message))
    exception = raised_at(cited, facts)
    job_frames = (
        [frame for frame in exception[1].frames if frame.line and not LIBRARY.search(frame.file)] if exception is not None else []
    )
    caller = job_frames[-2] if len(job_frames) > 1 else None
    call = f"; it was called at {caller.file}:{caller.line}" if caller is not None else ""
    source = code_of(caller, facts) if caller is not None else ""
    quoted = f": {message}" if message else ""
    sentence = f"The program's own check at {_place_of(origin)} refuses it{quoted}{f' ({values})' if values else ''}"
    return f"{sentence}{call}{f', `{source}`' if source else ''}."


def _asked_at(diagnosis: Diagnosis, facts: Facts, words: EntryWords | None) -> str:
    """Return the job's own line that asked a service over HTTP; empty where no such library speaks, or the line is named."""
    origin = by_origin(diagnosis, facts)[0][1]
    asks = origin is not None and (origin.library in _HTTP or diagnosis.reason not in OF_SERVICES)
    if origin is None or not origin.own or not asks or (words is not None and origin.place in words.text):
        return ""
    code = f", `{origin.code}`" if origin.code else ""
    fixed = diagnosis.action is Action.FIX_AND_RESUBMIT
    retry_words = "" if fixed else ": a few more tries with a pause there outlive such a break"
    return f"It is asked for at {_place_of(origin)}{code}{retry_words}."


def _without(demand: str, message: str) -> str:
    """Return a message without the words that were quoted of it as its demand; empty where the demand has nearly all of them."""
    words_before = {word.lower() for word in LONG_WORDS.findall(demand)}
    words = [word for word in (word.lower() for word in LONG_WORDS.findall(message)) if word not in _OF_FORM]
    words = words[1:] if words and words[0].endswith(("error", "exception")) else words
    if words_before and sum(word in words_before for word in words) >= REPEATED * len(words):
        return ""
    request = demand.partition("what the message asks: ")[2] or demand
    at = message.lower().find(request.lower()) if request else -1
    if at < 0:
        return message
    before = _ANNOUNCING.sub("", message[:at]).rstrip(" ,;:.!(")
    return before if len(LONG_WORDS.findall(before)) > FEWEST_WORDS else ""


def _place_of(origin: Origin) -> str:
    return origin.place + (f" in {origin.function}()" if origin.function.isidentifier() else "")


def _noticed_at(cited: Citation, words: EntryWords | None, facts: Facts) -> str:
    """Return the job's own call at which a device error showed: the kernel that made it is that call's, or of one before."""
    origin = origin_of(cited, facts)
    if origin is None or not origin.own or (words is not None and origin.place in words.text):
        return ""
    place = origin.place + (f" in {origin.function}()" if origin.function.isidentifier() else "")
    code = f", `{origin.code}`" if origin.code else ""
    return f"It showed at {place}{code}; the call that made it is this one or one before."


def _raised_from(origin: Origin) -> str:
    place = _place_of(origin)
    at = f"{place}, `{origin.code}`" if origin.code and origin.own else place
    return f"Raised from {at}" if origin.own else f"Raised inside {origin.library or 'a library'}, at {at}"
