"""What exactly has to change: a reason's general remedy gives way to what the lines of this case name.

Templates of knowledge/advice/ quote paths, settings, expressions and peers. What wants arithmetic is in
`out_of_memory` and `standing`; where the code raised it is in `origin`, what came before in `other_failures`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.content.reasons import Advice, Reason
from assistant.diagnose.advice.agreement import OF_SERVICES, action_of, agreeing
from assistant.diagnose.advice.builds import build_account
from assistant.diagnose.advice.crashes import bare_crash, crash_account
from assistant.diagnose.advice.decisive import error_before, filled_fields, first_nan, native_abort, without_gpu
from assistant.diagnose.advice.demands import demand_of, keys_account, nearest_option, printed_remedy
from assistant.diagnose.advice.diverged import diverged_early
from assistant.diagnose.advice.drivers import driver_account, without_device
from assistant.diagnose.advice.endpoints import general_account
from assistant.diagnose.advice.instructions import PRINTED, instruction_in, says_already
from assistant.diagnose.advice.near_names import near_name
from assistant.diagnose.advice.other_failures import (
    ANNOUNCES,
    NAMED_THING,
    ended_later,
    explained_by,
    failed_later,
    further_lines,
    handled_before,
    handler_failed,
    look_first,
    requirement_account,
    script_fault,
)
from assistant.diagnose.advice.out_of_memory import KILLS, kill_account, memory_advice
from assistant.diagnose.advice.path_state import NO_STATE, path_state
from assistant.diagnose.advice.sentences import joined
from assistant.diagnose.advice.slots import slots_of
from assistant.diagnose.advice.standing import (
    end_account,
    last_failure,
    last_words,
    spike_account,
    stack_account,
    waiting_account,
)
from assistant.diagnose.advice.stopped import ENTRY_FIRST, SAVED_NOTHING, saved, standing, with_checkpoint
from assistant.diagnose.advice.switched_off import switched_off
from assistant.diagnose.advice.url_paths import url_account
from assistant.diagnose.advice.vendors import in_words_of_vendor
from assistant.diagnose.advice.workflows import command_error, workflow_account
from assistant.diagnose.answer import DEEDS, cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import last_save, settings_named
from assistant.diagnose.readers.origin import (
    LIBRARY,
    Origin,
    ProgramKind,
    ProgramOfLog,
    caller_of,
    message_of,
    origin_of,
    program_of,
    raised_at,
    source_of,
)
from assistant.records import Action, Category, Citation, Diagnosis

AROUND = 40
"""Lines before and behind the cited one that may fill a template."""
MESSAGE_LINES = 8
"""Of a message of several lines, those that a template may match."""
PREEMPTED = (
    "The scheduler took its nodes for another job. See first whether it puts the job back into the queue itself; if not, submit it "
    "again with the option that goes on from the last healthy checkpoint, for the same command as before may begin anew."
)
PREEMPTED_ANEW = (
    "The scheduler took its nodes for another job. See first whether it puts the job back into the queue itself; if not, submit "
    "it again."
)
LEAST_NAMED = 12
"""Characters of a path or address that two sentences share, from which on they tell of the same."""
SHOWN_OF_MESSAGE, SHOWN_OF_LINE = 400, 160
_OF_NUMBERS = re.compile(r"\b[Nn]a[Nn]\b|\binf|non-?finite|invalid values|not a number|AssertionError\W*$")
_LATER = ("CUDA error", "HIP error", "NCCL", "KeyboardInterrupt", "Cuda error", "CUDA Error")
"""Words of errors that show at whatever call comes next."""
_REFUSED = re.compile(r"(?:unrecognized arguments|Unrecognized options|No such option|unrecognized option):? (.{1,200})")
_ASSERTS = re.compile(r"assert (.{3,120}?)(?:, ?f?['\"(].*)?$")
_STOP_LEFT = re.compile(
    r"^raise \w+\(\s*f?['\"]\W*(?:stop|debug|exit|here|done|test|break|todo|xxx+|asdf|quit|end|bye|ok|hi|hello)\W*['\"]\s*\)$",
    re.IGNORECASE,
)
_OF_KEYS = frozenset({"model_loading_error", "runtime_error", "key_error"})
_OF_MESSAGES = frozenset(
    "runtime_error type_error value_error key_error attribute_error index_error name_error assertion_error argument_error "
    "syntax_error zero_division_error".split()
)
"""Reasons of which the general remedy only says that the message is to be read."""
_OF_CALLS = _OF_MESSAGES - {"argument_error", "name_error", "syntax_error"}
_OF_VALUES = frozenset({"type_error", "attribute_error", "assertion_error", "index_error"})
"""Reasons of which the value that was refused may have come in by a call, and those where a known remedy does not tell of it."""
_ASKS = frozenset(
    "called_process_error file_not_found_error permission_error dataset_loading_error model_loading_error "
    "os_error import_error output_file_error "
    "s3_storage_error connection_error out_of_memory_error".split()
)
"""Reasons of which the message may say more than the general remedy."""
_OF_DRIVERS = frozenset({"cuda_error", "nvlink_error", "runtime_error", "import_error", "assertion_error"})
"""Reasons of which the message may be a code of the driver."""
_OF_PATHS = frozenset({"os_error", "permission_error", "file_not_found_error", "output_file_error", "s3_storage_error"})
"""Reasons of which the mount, the disk or the owner of a path may be why."""
_OF_NAMES = frozenset({"argument_error", "key_error", "attribute_error", "name_error"})
"""Reasons of which a name that the log has nearly alike is all that has to be said."""
_OF_SERVICES = frozenset({"connection_error", "s3_storage_error"})
_HTTP = frozenset("requests urllib3 httpx httpcore aiohttp botocore boto3 s3fs fsspec huggingface_hub urllib http".split())
"""Packages by which a program asks a service."""
_NO_PLACE = frozenset(
    {"cancelled", "time_limit", "preempted", "no_failure", "unknown", "killed", "hang", "loss_spike", "dataloader_killed"}
)
REPEATED = 0.75
"""Share of the words of a message from which on a demand that has them makes the message a repetition."""
_LONG_WORDS = re.compile(r"[\w.-]{3,}")
FEWEST_WORDS = 3
"""Long words of a message above which what stands before its request says why."""
_ANNOUNCING = re.compile(
    r"(?:(?:[Pp]lease|[Tt]ry(?: to)?|[Yy]ou (?:can|should|must|need to|may)|[Cc]onsider|[Oo]r|[Tt]hen|\b[Ss]o)[ :,]{0,3}){1,3}$"
)
_OF_FORM = frozenset("must has have had should needs not but got the are was were and".split())
"""Words by which a message complains, and not of what."""

KERNEL = "dmesg.log"
"""What the kernels of the job's nodes said."""


class _Words(NamedTuple):
    text: str
    whole: bool = False
    """Whether it says what to do about the run, too, so that no sentence of the action goes before it."""
    wall: bool = False
    """Whether a restart would meet the same again."""
    quiet: bool = False
    """Whether nothing has to be changed, only another moment chosen."""
    complete: bool = False
    """Whether it has read what stands around the cited line, so that no other line has to be quoted."""


def with_particulars(diagnosis: Diagnosis, facts: Facts, reason: Reason | None, entries: Sequence[Advice]) -> Diagnosis:
    """Return a diagnosis whose advice says what this case shows; where it shows nothing more, the diagnosis as it is."""
    if reason is None or not diagnosis.advice.endswith(reason.remedy):
        return diagnosis
    deed = diagnosis.advice.removesuffix(reason.remedy).strip()
    program = program_of(diagnosis, facts)
    if diagnosis.reason == "no_failure":
        return replace(diagnosis, advice=f"{end_account(diagnosis, facts)} {without_device(facts) or diagnosis.advice}".strip())
    if diagnosis.reason == "unknown" and facts.lines and facts.case.job is None:
        remedy = _of_last_failure(diagnosis, facts, entries, program)
        remedy = remedy or " ".join(filter(None, (deed, last_words(diagnosis, facts), _switched_off_before_end(facts))))
        return replace(diagnosis, advice=in_words_of_vendor(remedy, facts))
    if diagnosis.reason == "loss_spike" and (early := diverged_early(diagnosis, facts)) is not None:
        return early
    entry_first = diagnosis.reason == "hang" or any(cited.rule in ENTRY_FIRST for cited in diagnosis.root_cause[:1])
    asked_first = entries if entry_first else [entry for entry in entries if entry.first]
    quoted = next(_quoted(diagnosis, facts, asked_first, program), None)
    words = quoted or _by_reason(diagnosis, facts, program) or next(_quoted(diagnosis, facts, entries, program), None)
    about_path = diagnosis.reason in OF_SERVICES | _OF_PATHS and diagnosis.root_cause
    if about_path and (url := url_account(diagnosis.root_cause[0], facts)):
        words = _Words(url, wall=True, complete=True)
    state = path_state(diagnosis.root_cause[0], facts) if diagnosis.reason in _OF_PATHS and diagnosis.root_cause else NO_STATE
    if state.wall:
        words = _Words(words.text if words is not None else "", wall=True)
    action = action_of(diagnosis, facts, wall=words is not None and words.wall, quiet=words is not None and words.quiet)
    if action is not diagnosis.action:
        diagnosis = replace(diagnosis, action=action)
        deed = DEEDS[action]
    if diagnosis.reason == "preempted" and facts.case.job is None:
        deed = PREEMPTED if program.trains else PREEMPTED_ANEW
    over = diagnosis.reason == "time_limit" and facts.case.job is None and last_save(facts) is None and not words
    unsaved = saved(facts) if over else ""
    deed = (
        unsaved
        if unsaved.startswith(SAVED_NOTHING)
        else ""
        if over or (words is not None and words.whole)
        else with_checkpoint(deed, facts, program)
    )
    decides = diagnosis.reason == "time_limit" and words is not None and (words.wall or words.complete)
    parts = [
        deed,
        " ".join(filter(None, (state.sentence, words.text if words else ""))),
        _place(diagnosis, facts, words),
        "" if decides else standing(diagnosis, facts, program),
    ]
    first, earlier = handled_before(diagnosis, facts), look_first(diagnosis, facts)
    if (
        first and diagnosis.reason in _OF_MESSAGES and handler_failed(diagnosis, facts)
    ):  # what the handler of an error met is no cause
        parts[1], parts[2] = first, _place(diagnosis, facts, None)
    else:
        earlier = f"{first} {earlier}".strip()
    if words is not None and (words.complete or any(place in words.text for place in re.findall(r"\(job\.log:\d+", earlier))):
        earlier = ""  # what came before is what the advice is about
    if words is not None and any(name in words.text for name in NAMED_THING.findall(earlier) if len(name) >= LEAST_NAMED):
        earlier = ""  # it tells of the same file, image or address, which the advice has read
    if not any(parts[1:3]) and not _said_already(diagnosis, earlier, parts[3]):
        parts[1] = _remedy(diagnosis, facts, reason)
    if (diagnosis.reason == "hang" or (diagnosis.reason in KILLS and words is not None)) and action is not Action.FIX_AND_RESUBMIT:
        parts = [*parts[1:], parts[0]]
    if diagnosis.root_cause and diagnosis.action is Action.FIX_AND_RESUBMIT and (near := near_name(diagnosis.root_cause[0], facts)):
        parts = [near, parts[0], "" if diagnosis.reason in _OF_NAMES else parts[1], *parts[2:]]
    complete = words is not None and words.complete
    printed = "" if complete else _printed(diagnosis, [*parts, earlier], facts, understood=words is not None)
    if words is None and (printed_words := PRINTED.match(printed)) and (instruction := instruction_in(printed_words[2])):
        parts, printed = [f"{instruction} ({printed_words[1]}).", *parts], ""
    parts += [earlier, printed]
    parts.append(_later_failures(diagnosis, " ".join(parts), facts, understood=words is not None))
    if more := (*_of_tool(diagnosis, facts), *further_lines(diagnosis, facts)):
        first_lines, lines = diagnosis.root_cause[:1], {cited.line for cited in more}
        cited_lines = (*first_lines, *more, *(cited for cited in diagnosis.root_cause[1:] if cited.line not in lines))
        diagnosis = replace(diagnosis, root_cause=cited_lines[: max(3, len(diagnosis.root_cause))])
    if over and diagnosis.action is Action.RESTART_SAME_NODES and not (program.trains or program.kind is ProgramKind.SERVING):
        diagnosis = replace(diagnosis, action=Action.FIX_AND_RESUBMIT)  # the same start meets the same limit at the same place
    return agreeing(replace(diagnosis, advice=in_words_of_vendor(joined(parts), facts)), facts)


def _of_tool(diagnosis: Diagnosis, facts: Facts) -> tuple[Citation, ...]:
    """Return the line in which the command of a failed rule of a workflow tells why."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    line = facts.line(command_error(cited, facts)) if cited is not None else None
    return (Citation("job.log", line.number, line.text, cited.rule),) if line is not None and cited is not None else ()


def _later_failures(diagnosis: Diagnosis, advice: str, facts: Facts, *, understood: bool) -> str:
    """Return what stands elsewhere in the log and bears upon what has to change: settings, a first NaN, a run without a GPU."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or cited.file != "job.log" or diagnosis.action is not Action.FIX_AND_RESUBMIT or facts.combined is not None:
        return ""
    sentences: list[str] = []
    if diagnosis.reason in _OF_MESSAGES | _ASKS:
        origin = origin_of(cited, facts)
        source = origin.code if origin is not None and origin.own else ""
        printed = settings_named(facts, " ".join(message_of(cited, facts)[:MESSAGE_LINES]), source, cited.line)
        handed = diagnosis.reason in (_OF_VALUES if understood else _OF_CALLS)
        place, call = caller_of(cited, facts) if handed else ("", "")
        if place and f"{place} " not in f"{advice} " and f"{place}," not in advice:
            sentences.append(f"It was called at {place}, `{call}`.")
        if not understood and (origin is None or not origin.own) and (line := error_before(cited, facts)) is not None:
            words = cut(facts.streams.body(line.text).text.strip(), SHOWN_OF_LINE).rstrip(".")
            sentences.append(f"Before it the log tells of an error (job.log:{line.number}: {words}).")
        new = [value for value in printed if f"(job.log:{value.line})" not in advice]
        if new:
            sentences.append(f"The log prints {', '.join(map(str, new))}.")
    if diagnosis.reason in _OF_MESSAGES | _ASKS and (step := switched_off(cited, facts)):
        sentences.insert(0, step)
    if (ended := ended_later(cited.line, facts)) and ended not in advice:
        sentences.append(ended)
    if later_failures := failed_later(cited, facts):
        sentences.append(later_failures)
    if fault := script_fault(cited.line, facts, of_program=diagnosis.reason in _OF_MESSAGES):
        sentences.append(fault)
    asserted = "device-side assert" in cited.text
    nan = first_nan(facts, cited.line) if asserted or _OF_NUMBERS.search(cited.text) else None
    if nan is not None and f"job.log:{nan[1]})" not in advice and (asserted or diagnosis.reason in _OF_MESSAGES | _ASKS):
        sentences.append(f"The first value that is no number is {nan[0]} (job.log:{nan[1]}).")
    line = without_gpu(facts, cited.line)
    if line is not None and f"job.log:{line.number}" not in advice:
        text = cut(facts.streams.body(line.text).text.strip(), SHOWN_OF_LINE).rstrip(".")
        sentences.append(f"It ran without a GPU (job.log:{line.number}: {text}).")
    return " ".join(sentences)


def _said_already(diagnosis: Diagnosis, earlier: str, reached: str) -> bool:
    """Tell whether the general remedy, or the bare message, adds nothing to what else is said."""
    says_limit = diagnosis.reason == "time_limit" and reached
    return bool(
        says_limit or diagnosis.reason == "preempted" or (earlier and diagnosis.reason in _OF_MESSAGES | {"called_process_error"})
    )


def _by_reason(diagnosis: Diagnosis, facts: Facts, program: ProgramOfLog) -> _Words | None:
    """Return what wants arithmetic over the whole case; None where it has nothing to count."""
    for cited in diagnosis.root_cause[:2] if diagnosis.reason in _OF_DRIVERS else ():
        account, wall = driver_account(cited, facts)
        if account:
            return _Words(account, whole=not wall and not diagnosis.nodes, wall=wall)
    for cited in diagnosis.root_cause[:2]:
        crash, wall = crash_account(cited, facts)
        if account := crash or build_account(cited, facts) or workflow_account(cited, facts):
            return _Words(account, wall=wall or not crash, complete=True)
    text, by_itself = kill_account(diagnosis, facts, program)
    if diagnosis.reason == "loss_spike":
        text = spike_account(diagnosis, facts)
    elif diagnosis.reason == "nccl_timeout_error":
        text = waiting_account(facts)
    elif diagnosis.reason == "hang":
        text = stack_account(diagnosis, facts)
    for cited in diagnosis.root_cause[:2]:
        text = text or memory_advice(cited, facts, program)
    for cited in diagnosis.root_cause[:2] if diagnosis.reason in ("runtime_error", "killed", "dataset_loading_error") else ():
        text = text or native_abort(cited, facts)
    for cited in diagnosis.root_cause[:2] if diagnosis.reason in _OF_KEYS else ():
        origin = origin_of(cited, facts)
        text = text or keys_account(message_of(cited, facts), origin.place if origin is not None else "")
    for cited in diagnosis.root_cause[:1] if diagnosis.reason == "import_error" else ():
        text = text or requirement_account(cited, facts)
    early = diagnosis.reason == "dataloader_killed" and program.trains and not program.steps
    return _Words(text, wall=early or by_itself, complete=by_itself) if text else None


def _remedy(diagnosis: Diagnosis, facts: Facts, reason: Reason) -> str:
    """Return what is left to say where no template fits: of code and settings the message itself, else the general remedy."""
    if diagnosis.reason == "cuda_error" and diagnosis.action is Action.CORDON_AND_RESTART:
        return "Test its GPUs (dcgmi diag -r 3) and reset them, or the host, before it comes back; what fails again is replaced."
    raised = any(raised_at(cited, facts) is not None for cited in diagnosis.root_cause[:2])
    if diagnosis.reason == "cuda_error" and diagnosis.action is Action.FIX_AND_RESUBMIT and raised:
        return "Run it once with CUDA_LAUNCH_BLOCKING=1: then the traceback ends at the call that the device refused."
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    asks = cited is not None and diagnosis.reason in _ASKS and diagnosis.action is Action.FIX_AND_RESUBMIT
    if cited is not None and asks and (demanded := demand_of(cited, facts)):
        return f"{demanded.rstrip('.?! ')} ({cited.file}:{cited.line})."
    if diagnosis.reason not in _OF_MESSAGES or not diagnosis.root_cause:
        return general_account(diagnosis, facts) or reason.remedy
    cited = _by_origin(diagnosis, facts)[0][0]
    message = cut(" ".join(message_of(cited, facts)[:MESSAGE_LINES]), SHOWN_OF_MESSAGE)
    demand = demand_of(cited, facts)
    place = f"{cited.file}:{cited.line}: {message}"
    message = f"{demand} ({place.rstrip('.')})." if demand else f"All that the log says is {place}"
    return bare_crash(cited, facts) or message


def _printed(diagnosis: Diagnosis, parts: Sequence[str], facts: Facts, *, understood: bool) -> str:
    """Return what the log itself says about the remedy, as far as it is not said; empty where nothing is to be mended."""
    if diagnosis.action is not Action.FIX_AND_RESUBMIT or not diagnosis.root_cause:
        return ""
    cited = _by_origin(diagnosis, facts)[0][0]
    refused = _REFUSED.search(cited.text)
    if diagnosis.reason == "argument_error" and refused is not None and not refused[1].strip():
        return ""  # it names no option
    if diagnosis.reason == "argument_error" and refused is not None:
        return nearest_option(cited, [name for name in refused[1].split() if name.startswith("-")], facts)
    if understood and (instruction := instruction_in("\n".join(message_of(cited, facts)[:MESSAGE_LINES]))):
        own_words, advice_words = (set(_LONG_WORDS.findall(words.lower())) for words in (instruction, " ".join(parts)))
        if len(own_words & advice_words) < REPEATED * len(own_words) and not says_already(instruction, " ".join(parts)):
            return f"The message itself asks (job.log:{cited.line}): {instruction}."
    return printed_remedy(cited, " ".join(parts), facts, message=not understood)


def _quoted(diagnosis: Diagnosis, facts: Facts, entries: Sequence[Advice], program: ProgramOfLog) -> Iterator[_Words]:
    """Yield what the first cited line that says enough asks for; those with a traceback come first, for they say where."""
    fitting = [entry for entry in entries if diagnosis.reason in entry.reasons or not entry.reasons]
    own: dict[str, str] = {}
    by_kernel = diagnosis.action is Action.CORDON_AND_RESTART and any(
        cited.file == KERNEL and cited.role == "root" for cited in diagnosis.root_cause
    )
    for cited, origin in _by_origin(diagnosis, facts):
        if by_kernel and cited.file != KERNEL:
            continue  # what the program met behind a machine's fault: advice on code or input would lead astray
        near = _near(cited, facts)
        slots = own | slots_of(diagnosis, cited, origin, facts, raised_at(cited, facts), program)
        own = own or {"own": slots["own"]} if "own" in slots else own
        for line in message_of(cited, facts)[:MESSAGE_LINES]:
            for entry in fitting:
                if text := entry.fill(line, near, slots):
                    yield _Words(text, entry.whole, entry.wall, entry.quiet, entry.complete)
                    return


def _of_last_failure(diagnosis: Diagnosis, facts: Facts, entries: Sequence[Advice], program: ProgramOfLog) -> str:
    """Return what the last line that tells of a failure asks for, of a log of which the reason is unknown; empty where nothing."""
    line = last_failure(facts)
    if line is None:
        return ""
    cited = Citation("job.log", line.number, line.text, "")
    of_any = [entry for entry in entries if not entry.reasons]
    words = next(_quoted(replace(diagnosis, root_cause=(cited,)), facts, of_any, program), None)
    return f"{words.text} The log does not show whether that ended it (job.log:{line.number})." if words is not None else ""


def _switched_off_before_end(facts: Facts) -> str:
    """Return which step that is switched off the last line that tells of a failure asks for; empty where none shows."""
    line = last_failure(facts)
    return switched_off(Citation("job.log", line.number, line.text, ""), facts) if line is not None else ""


def _by_origin(diagnosis: Diagnosis, facts: Facts) -> list[tuple[Citation, Origin | None]]:
    """Return cited lines with where they were raised: those that only announce another exception, or show no frame, last."""
    announced = any(ANNOUNCES.search(cited.text) for cited in diagnosis.root_cause[:3])
    explained = explained_by(diagnosis.root_cause[0], facts) if diagnosis.root_cause else set()
    lines = [cited for cited in diagnosis.root_cause[: 6 if announced else 3] if cited.line not in explained]
    origins = [(cited, origin_of(cited, facts)) for cited in lines]
    built = diagnosis.reason == "called_process_error"  # the traceback is of the program that called the tool
    return sorted(origins, key=lambda pair: (ANNOUNCES.search(pair[0].text) is not None, pair[1] is None and not built))


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


def _place(diagnosis: Diagnosis, facts: Facts, words: _Words | None) -> str:
    """Return where it was raised and what stands there, as far as it is not said; with the message where no remedy is known."""
    if diagnosis.reason == "cuda_error" and not diagnosis.nodes and diagnosis.root_cause:
        return _noticed_at(diagnosis.root_cause[0], words, facts)
    if diagnosis.root_cause and (diagnosis.reason in _OF_SERVICES or diagnosis.action is Action.WAIT_AND_RETRY):
        return _asked_at(diagnosis, facts, words)
    if diagnosis.category is Category.INFRASTRUCTURE or diagnosis.reason in _NO_PLACE or not diagnosis.root_cause:
        return ""
    cited, origin = _by_origin(diagnosis, facts)[0]
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
    raised = raised_at(cited, facts)
    own = [frame for frame in raised[1].frames if frame.line and not LIBRARY.search(frame.file)] if raised is not None else []
    caller = own[-2] if len(own) > 1 else None
    called = f"; it was called at {caller.file}:{caller.line}" if caller is not None else ""
    source = source_of(caller, facts) if caller is not None else ""
    quoted = f": {message}" if message else ""
    sentence = f"The program's own check at {_place_of(origin)} refuses it{quoted}{f' ({values})' if values else ''}"
    return f"{sentence}{called}{f', `{source}`' if source else ''}."


def _asked_at(diagnosis: Diagnosis, facts: Facts, words: _Words | None) -> str:
    """Return the job's own line that asked a service over HTTP; empty where no such library speaks, or the line is named."""
    origin = _by_origin(diagnosis, facts)[0][1]
    asks = origin is not None and (origin.library in _HTTP or diagnosis.reason not in _OF_SERVICES)
    if origin is None or not origin.own or not asks or (words is not None and origin.place in words.text):
        return ""
    code = f", `{origin.code}`" if origin.code else ""
    fixed = diagnosis.action is Action.FIX_AND_RESUBMIT
    retry_words = "" if fixed else ": a few more tries with a pause there outlive such a break"
    return f"It is asked for at {_place_of(origin)}{code}{retry_words}."


def _without(demand: str, message: str) -> str:
    """Return a message without the words that were quoted of it as its demand; empty where the demand has nearly all of them."""
    words_before = {word.lower() for word in _LONG_WORDS.findall(demand)}
    words = [word for word in (word.lower() for word in _LONG_WORDS.findall(message)) if word not in _OF_FORM]
    words = words[1:] if words and words[0].endswith(("error", "exception")) else words
    if words_before and sum(word in words_before for word in words) >= REPEATED * len(words):
        return ""
    request = demand.partition("what the message asks: ")[2] or demand
    at = message.lower().find(request.lower()) if request else -1
    if at < 0:
        return message
    before = _ANNOUNCING.sub("", message[:at]).rstrip(" ,;:.!(")
    return before if len(_LONG_WORDS.findall(before)) > FEWEST_WORDS else ""


def _place_of(origin: Origin) -> str:
    return origin.place + (f" in {origin.function}()" if origin.function.isidentifier() else "")


def _noticed_at(cited: Citation, words: _Words | None, facts: Facts) -> str:
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
