"""What exactly has to change: a reason's general remedy gives way to what the lines of this case name.

Templates of knowledge/advice/ quote paths, settings, expressions and peers. What wants arithmetic is in
`out_of_memory` and `standing`; where the code raised it is in `origin`, what came before in `other_failures`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assistant.content.reasons import Advice, Reason
from assistant.diagnose.advice.agreement import OF_SERVICES, action_of, agreeing, system_refusal
from assistant.diagnose.advice.amounts import killed_again
from assistant.diagnose.advice.assertions import ANY_CHECK, WITHOUT_WORDS, assertion_account, empty_assertion_account
from assistant.diagnose.advice.builds import build_account
from assistant.diagnose.advice.case_objects import (
    configuration_named,
    folder_sought,
    further_block_lines,
    objects_unsaid,
    place_named,
    save_before_nan,
    values_of_options,
    warned_before,
    with_hosts,
    without_other_runtimes,
)
from assistant.diagnose.advice.crashes import bare_crash, crash_account
from assistant.diagnose.advice.decisive import error_before, first_nan, native_abort, without_gpu
from assistant.diagnose.advice.demands import demand_of, keys_account, nearest_option, printed_remedy
from assistant.diagnose.advice.diverged import diverged_early
from assistant.diagnose.advice.drivers import driver_account, in_words_of_vendor, without_device
from assistant.diagnose.advice.entry_words import (
    MESSAGE_LINES,
    EntryWords,
    by_origin,
    of_last_failure,
    switched_off,
    switched_off_before_end,
    words_of_entries,
)
from assistant.diagnose.advice.families import account_of, general_account, last_step, names_of, next_step
from assistant.diagnose.advice.good_ends import end_account, run_before, with_items_first
from assistant.diagnose.advice.hidden_errors import hidden_account, hidden_error, with_first_mend
from assistant.diagnose.advice.near_names import misnamed, near_name
from assistant.diagnose.advice.other_failures import (
    NAMED_THING,
    ended_later,
    failed_later,
    further_lines,
    handled_before,
    handler_failed,
    look_first,
    requirement_account,
    script_fault,
)
from assistant.diagnose.advice.out_of_memory import KILLS, kill_account, memory_advice
from assistant.diagnose.advice.path_state import NO_STATE, path_state, url_account
from assistant.diagnose.advice.raising_place import LONG_WORDS, REPEATED, SHOWN_OF_MESSAGE, raising_place, with_message_line
from assistant.diagnose.advice.runtime_failures import PANIC, runtime_account
from assistant.diagnose.advice.runtimes import language_account
from assistant.diagnose.advice.sentences import PRINTED, instruction_in, joined, says_already
from assistant.diagnose.advice.shown_beside import (
    CRASHES,
    came_again,
    handed_over_as,
    killed_command,
    last_words_of_program,
    same_of_others,
    zero_size,
)
from assistant.diagnose.advice.standing import (
    last_failure,
    last_words,
    spike_account,
    stack_account,
    waiting_account,
)
from assistant.diagnose.advice.stopped import ENTRY_FIRST, SAVED_NOTHING, learns, saved, standing, with_checkpoint
from assistant.diagnose.advice.takers import handled_request
from assistant.diagnose.advice.workflows import command_error, workflow_account
from assistant.diagnose.answer import DEEDS, NO_HELP, cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import last_save, settings_named
from assistant.diagnose.readers.native_places import calls_of_r, native_place
from assistant.diagnose.readers.origin import (
    ProgramOfLog,
    caller_of,
    message_of,
    origin_of,
    program_of,
    raised_at,
)
from assistant.logs.lines import Line
from assistant.records import Action, Citation, Diagnosis

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
SHOWN_OF_LINE = 160
_OF_NUMBERS = re.compile(r"\b[Nn]a[Nn]\b|\binf|non-?finite|invalid values|not a number|AssertionError\W*$")
_OF_TRAINING = re.compile(r"[Tt]ensor\b|\b(?:loss|gradients?|logits|distribution)\b")
_IS_NAN = re.compile(r"\b[Nn]a[Nn]\b.{0,200}|[Nn]on-?finite|invalid values")
_REFUSED = re.compile(r"(?:unrecognized arguments|Unrecognized options|No such option|unrecognized option):? (.{1,200})")
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
_OF_RUNTIMES = _OF_MESSAGES | {"import_error", "file_not_found_error", "os_error", "permission_error"}
"""Reasons of which a stack of another language may show the place."""
_OF_PATHS = frozenset({"os_error", "permission_error", "file_not_found_error", "output_file_error", "s3_storage_error"})
"""Reasons of which the mount, the disk or the owner of a path may be why."""
_OF_REQUESTS = frozenset({"connection_error", "network_error", "s3_storage_error"})
"""Reasons of which a request to another machine failed, which the program may try again."""
_ABSOLUTE = re.compile(r"(?<![\w./])/[\w.@+=~-]+(?:/[\w.@+=~-]+)+")
_OF_NAMES = frozenset({"argument_error", "key_error", "attribute_error", "name_error"})
"""Reasons of which a name that the log has nearly alike is all that has to be said."""


def with_particulars(diagnosis: Diagnosis, facts: Facts, reason: Reason | None, entries: Sequence[Advice]) -> Diagnosis:
    """Return a diagnosis whose advice says what this case shows; where it shows nothing more, the diagnosis as it is."""
    if reason is None or not diagnosis.advice.endswith(reason.remedy):
        return diagnosis
    diagnosis = with_message_line(diagnosis, facts)
    if (error := hidden_error(diagnosis, facts)) is not None:
        return _behind_limit(diagnosis, error, facts)
    deed = diagnosis.advice.removesuffix(reason.remedy).strip()
    program = program_of(diagnosis, facts)
    if diagnosis.reason == "no_failure":
        account = end_account(diagnosis, facts)
        proposal = without_device(facts) or run_before(facts) or ("" if diagnosis.action is not Action.NONE else diagnosis.advice)
        return replace(diagnosis, advice=f"{account} {proposal}".strip())
    if diagnosis.reason == "unknown" and facts.lines and facts.case.job is None:
        remedy = of_last_failure(diagnosis, facts, entries, program) or last_step(last_failure(facts), facts)
        remedy = remedy or " ".join(
            filter(None, (deed, last_words(diagnosis, facts), switched_off_before_end(facts), last_words_of_program(facts)))
        )
        return replace(diagnosis, advice=without_other_runtimes(in_words_of_vendor(remedy, facts), facts))
    if diagnosis.reason == "loss_spike" and (early := diverged_early(diagnosis, facts)) is not None:
        return early
    entry_first = diagnosis.reason == "hang" or any(cited.rule in ENTRY_FIRST for cited in diagnosis.root_cause[:1])
    asked_first = entries if entry_first else [entry for entry in entries if entry.first]
    quoted = words_of_entries(diagnosis, facts, asked_first, program)
    counted = None if quoted else _by_reason(diagnosis, facts, entries, program)
    words = quoted or counted or words_of_entries(diagnosis, facts, entries, program)
    about_path = diagnosis.reason in OF_SERVICES | _OF_PATHS and diagnosis.root_cause
    if about_path and (url := url_account(diagnosis.root_cause[0], facts)):
        words = EntryWords(url, wall=True, complete=True)
    if diagnosis.reason == "assertion_error" and (words is None or words.text.startswith(ANY_CHECK)):
        checked = assertion_account(diagnosis.root_cause[0], facts) if diagnosis.root_cause else ""
        words = EntryWords(checked, wall=True, complete=True) if checked else words
    of_runtime = words is None or (bool(diagnosis.root_cause) and PANIC.search(diagnosis.root_cause[0].text) is not None)
    if of_runtime and diagnosis.root_cause and diagnosis.reason in _OF_RUNTIMES:
        account = runtime_account(diagnosis.root_cause[0], facts, names_thing=diagnosis.reason not in _OF_MESSAGES)
        words = EntryWords(account, wall=True, complete=True) if account else words
    if (
        diagnosis.root_cause
        and diagnosis.reason in _OF_MESSAGES
        and (empty := empty_assertion_account(diagnosis.root_cause[0], facts))
    ):
        words = counted = EntryWords(empty, wall=True, complete=True)
    if counted is None and (step := _by_kind(diagnosis, words, facts)):
        words = words._replace(text=step) if words is not None else EntryWords(step)
    may_be_misnamed = diagnosis.action is Action.FIX_AND_RESUBMIT or diagnosis.reason in OF_SERVICES
    if diagnosis.root_cause and may_be_misnamed and (name := misnamed(diagnosis.root_cause[0], facts)):
        words = EntryWords(name, wall=True, complete=True)
    state = path_state(diagnosis.root_cause[0], facts) if diagnosis.reason in _OF_PATHS and diagnosis.root_cause else NO_STATE
    if state.wall:
        words = EntryWords(words.text if words is not None else "", wall=True)
    action = action_of(diagnosis, facts, wall=words is not None and words.wall, quiet=words is not None and words.quiet)
    if action is not diagnosis.action:
        diagnosis = replace(diagnosis, action=action)
        deed = DEEDS[action]
    repeats = came_again(diagnosis.root_cause[0], facts) if diagnosis.reason in _OF_REQUESTS and diagnosis.root_cause else ""
    if repeats:
        words = EntryWords(
            " ".join(filter(None, (repeats, words.text if words is not None else ""))), covers_run=True, complete=True
        )
    if diagnosis.reason == "preempted" and facts.case.job is None:
        deed = PREEMPTED if program.trains else PREEMPTED_ANEW
    over = diagnosis.reason == "time_limit" and facts.case.job is None and last_save(facts) is None and not words
    unsaved = saved(facts) if over else ""
    deed = (
        unsaved
        if unsaved.startswith(SAVED_NOTHING)
        else ""
        if over or (words is not None and words.covers_run)
        else with_checkpoint(deed, facts, program)
    )
    decides = diagnosis.reason == "time_limit" and words is not None and (words.wall or words.complete)
    parts = [
        deed,
        " ".join(filter(None, (state.sentence, words.text if words else ""))),
        raising_place(diagnosis, facts, words),
        "" if decides else standing(diagnosis, facts, program),
    ]
    first, earlier = handled_before(diagnosis, facts), look_first(diagnosis, facts)
    if (
        first and diagnosis.reason in _OF_MESSAGES and handler_failed(diagnosis, facts)
    ):  # what the handler of an error met is no cause
        parts[1], parts[2] = first, raising_place(diagnosis, facts, None)
    else:
        earlier = f"{first} {earlier}".strip()
    empties = diagnosis.reason == "zero_division_error" and first == ""
    if (
        words is not None
        and not empties
        and (words.complete or any(place in words.text for place in re.findall(r"\(job\.log:\d+", earlier)))
    ):
        earlier = ""  # what came before is what the advice is about
    if words is not None and any(name in words.text for name in NAMED_THING.findall(earlier) if len(name) >= LEAST_NAMED):
        earlier = ""  # it tells of the same file, image or address, which the advice has read
    if not any(parts[1:3]) and not _said_already(diagnosis, earlier, parts[3]):
        parts[1] = _remedy(diagnosis, facts, reason)
    if words is not None and "If it was memory" in words.text and parts[0] and action is Action.RESTART_SAME_NODES:
        parts[0] = f"Where it was not memory: {parts[0]}"
    if (diagnosis.reason == "hang" or (diagnosis.reason in KILLS and words is not None)) and action is not Action.FIX_AND_RESUBMIT:
        parts = [*parts[1:], parts[0]]
    if diagnosis.root_cause and diagnosis.action is Action.FIX_AND_RESUBMIT and (near := _where_it_is(diagnosis, facts)):
        parts = [near, parts[0], "" if diagnosis.reason in _OF_NAMES else parts[1], *parts[2:]]
    complete = words is not None and words.complete
    printed = "" if complete else _printed(diagnosis, [*parts, earlier], facts, understood=words is not None)
    if words is None and (printed_words := PRINTED.match(printed)) and (instruction := instruction_in(printed_words[2])):
        parts, printed = [f"{instruction} ({printed_words[1]}).", *parts], ""
    parts += [earlier, printed]
    crashed = diagnosis.reason == "runtime_error" and any(CRASHES.search(cited.text) for cited in diagnosis.root_cause[:1])
    if diagnosis.root_cause and (crashed or diagnosis.reason in KILLS or (words is not None and "host memory" in words.text)):
        parts.append(killed_command(diagnosis.root_cause[0], facts))
    parts.append(_later_failures(diagnosis, " ".join(parts), facts, understood=words is not None))
    if diagnosis.root_cause and diagnosis.action is Action.FIX_AND_RESUBMIT:
        root, is_known = diagnosis.root_cause[0], words is not None and (words.complete or counted is not None)
        for object_account in (values_of_options, configuration_named):
            parts.append(object_account(root, " ".join(parts), facts))
        parts.append(further_block_lines(root, " ".join(parts), facts, is_known=is_known))
        parts.append(warned_before(root, " ".join(parts), facts))
    if diagnosis.root_cause and not diagnosis.nodes and diagnosis.reason in _OF_PATHS | _OF_REQUESTS:
        parts.append(objects_unsaid(diagnosis.root_cause[0], " ".join(parts), facts))
    if more := (*_of_tool(diagnosis, facts), *further_lines(diagnosis, facts)):
        first_lines, lines = diagnosis.root_cause[:1], {cited.line for cited in more}
        cited_lines = (*first_lines, *more, *(cited for cited in diagnosis.root_cause[1:] if cited.line not in lines))
        diagnosis = replace(diagnosis, root_cause=cited_lines[: max(3, len(diagnosis.root_cause))])
    limited = diagnosis.reason == "time_limit" and facts.case.job is None and last_save(facts) is None
    if limited and diagnosis.action is Action.RESTART_SAME_NODES and not learns(facts):
        diagnosis = replace(diagnosis, action=Action.FIX_AND_RESUBMIT)  # the same start meets the same limit at the same place
    text = in_words_of_vendor(joined(parts), facts)
    if diagnosis.root_cause:
        text = with_hosts(text, diagnosis.root_cause[0], facts)
    diagnosis = agreeing(replace(diagnosis, advice=without_other_runtimes(text, facts)), facts)
    return with_items_first(with_first_mend(diagnosis, facts), facts)


def _where_it_is(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return what the log has in place of a missing name, or where a missing file was looked for; empty where it shows neither."""
    cited = diagnosis.root_cause[0]
    return near_name(cited, facts) or (folder_sought(cited, facts) if diagnosis.reason in _OF_PATHS else "")


def _behind_limit(diagnosis: Diagnosis, error: Line, facts: Facts) -> Diagnosis:
    """Return a diagnosis of a time limit that only ended what had failed before: the same start meets the same error."""
    cited = Citation("job.log", error.number, error.text, "error before the limit")
    return replace(
        diagnosis,
        action=Action.FIX_AND_RESUBMIT,
        root_cause=(*diagnosis.root_cause[:1], cited, *diagnosis.root_cause[1:]),
        advice=f"{hidden_account(error, next_step(error, facts), facts)} {NO_HELP}",
    )


def _by_kind(diagnosis: Diagnosis, words: EntryWords | None, facts: Facts) -> str:
    """Return what the kind of a failure asks for, where what is known of its words names no object of it; or empty."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    line = facts.line(cited.line) if cited is not None and cited.file == "job.log" else None
    to_mend = diagnosis.action is Action.FIX_AND_RESUBMIT or (words is not None and words.wall)
    if line is None or cited is None or not to_mend or diagnosis.nodes:
        return ""
    if raised_at(cited, facts) is not None or (words is not None and any(name in words.text for name in names_of(line, facts))):
        return ""
    return next_step(line, facts)


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
    if handled := handled_request(cited, facts):
        sentences.append(handled)
    if (ended := ended_later(cited.line, facts)) and ended not in advice:
        sentences.append(ended)
    if later_failures := failed_later(cited, facts):
        sentences.append(later_failures)
    sentences += _shown_beside(diagnosis, cited, advice, facts)
    if fault := script_fault(cited.line, facts, of_program=diagnosis.reason in _OF_MESSAGES):
        sentences.append(fault)
    message = " ".join(message_of(cited, facts)[:MESSAGE_LINES])
    if diagnosis.reason in _OF_MESSAGES and _IS_NAN.search(message) and _OF_TRAINING.search(message):
        sentences.append(save_before_nan(cited, facts))
    is_device_assert = "device-side assert" in cited.text
    nan = first_nan(facts, cited.line) if is_device_assert or _OF_NUMBERS.search(cited.text) else None
    if nan is not None and f"job.log:{nan[1]})" not in advice and (is_device_assert or diagnosis.reason in _OF_MESSAGES | _ASKS):
        sentences.append(f"The first value that is no number is {nan[0]} (job.log:{nan[1]}).")
    line = without_gpu(facts, cited.line) if diagnosis.reason != "cuda_error" else None
    if line is not None and f"job.log:{line.number}" not in advice:
        text = cut(facts.streams.body(line.text).text.strip(), SHOWN_OF_LINE).rstrip(".")
        sentences.append(f"It ran without a GPU (job.log:{line.number}: {text}).")
    return " ".join(sentences)


def _shown_beside(diagnosis: Diagnosis, cited: Citation, advice: str, facts: Facts) -> Iterator[str]:
    """Yield what the log shows beside the cited line: the place in a source file, sizes that are 0, which argument a file was."""
    if origin_of(cited, facts) is None and WITHOUT_WORDS not in advice:
        place = native_place(cited, facts)
        if place is not None and f"{place.file}:{place.line}" not in advice:
            yield place.sentence
        elif place is None and (calls := calls_of_r(cited, facts)):
            yield f"It was called by {calls}."
        elif place is None and (source := place_named(cited, facts)) and source[0].rpartition(":")[0] not in advice:
            yield f"It stands at {source[0]} (job.log:{source[1]})."
    if (bare_crash(cited, facts) or diagnosis.reason == "zero_division_error") and (size := zero_size(cited, facts)):
        yield size
    if diagnosis.reason in _OF_PATHS and (same := same_of_others(cited, facts)):
        yield same
    path = _ABSOLUTE.search(" ".join(message_of(cited, facts)[:2]))
    if path is not None and (argument := handed_over_as(cited, path[0], facts)) and argument not in advice:
        yield argument


def _said_already(diagnosis: Diagnosis, earlier: str, reached: str) -> bool:
    """Tell whether the general remedy, or the bare message, adds nothing to what else is said."""
    says_limit = diagnosis.reason == "time_limit" and reached
    return bool(
        says_limit or diagnosis.reason == "preempted" or (earlier and diagnosis.reason in _OF_MESSAGES | {"called_process_error"})
    )


def _of_command(diagnosis: Diagnosis, facts: Facts, entries: Sequence[Advice], program: ProgramOfLog) -> str:
    """Return what the error of the command of a failed rule of a workflow asks for; empty where no entry knows it."""
    cited = diagnosis.root_cause[0]
    account, inner = workflow_account(cited, facts), _of_tool(diagnosis, facts)
    if not account or not inner:
        return ""
    words = words_of_entries(replace(diagnosis, root_cause=inner), facts, entries, program)
    return f"{account} {words.text}" if words is not None else ""


def _by_reason(diagnosis: Diagnosis, facts: Facts, entries: Sequence[Advice], program: ProgramOfLog) -> EntryWords | None:
    """Return what wants arithmetic over the whole case; None where it has nothing to count."""
    for cited in diagnosis.root_cause[:2] if diagnosis.reason in _OF_DRIVERS else ():
        account, wall = driver_account(cited, facts)
        if account:
            return EntryWords(account, covers_run=not wall and not diagnosis.nodes, wall=wall)
    for cited in diagnosis.root_cause[:2]:
        crash, wall = crash_account(cited, facts)
        if not crash and (account := _of_command(diagnosis, facts, entries, program)):
            return EntryWords(account, wall=True, complete=True)
        if account := crash or build_account(cited, facts) or workflow_account(cited, facts):
            return EntryWords(account, wall=wall or not crash, complete=True)
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
    repeated_kills = killed_again(diagnosis, facts) if diagnosis.reason == "killed" and not by_itself else ""
    return (
        EntryWords(
            f"{repeated_kills} {text}".strip(),
            wall=early or by_itself or bool(repeated_kills),
            complete=by_itself or bool(repeated_kills),
        )
        if text
        else None
    )


def _remedy(diagnosis: Diagnosis, facts: Facts, reason: Reason) -> str:
    """Return what is left to say where no template fits: of code and settings the message itself, else the general remedy."""
    if diagnosis.reason == "cuda_error" and diagnosis.action is Action.CORDON_AND_RESTART:
        return "Test its GPUs (dcgmi diag -r 3) and reset them, or the host, before it comes back; what fails again is replaced."
    raised = any(raised_at(cited, facts) is not None for cited in diagnosis.root_cause[:2])
    if diagnosis.reason == "cuda_error" and diagnosis.action is Action.FIX_AND_RESUBMIT and raised:
        return "Run it once with CUDA_LAUNCH_BLOCKING=1: then the traceback ends at the call that the device refused."
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is not None and diagnosis.reason == "permission_error" and (refusal := system_refusal(cited)):
        return refusal
    native = native_place(cited, facts) if cited is not None and diagnosis.reason in _OF_MESSAGES | _ASKS else None
    if native is not None and native.complaint:
        return native.sentence
    asks = cited is not None and diagnosis.reason in _ASKS and diagnosis.action is Action.FIX_AND_RESUBMIT
    if cited is not None and asks and (demanded := demand_of(cited, facts)):
        return f"{demanded.rstrip('.?! ')} ({cited.file}:{cited.line})."
    if diagnosis.reason not in _OF_MESSAGES or not diagnosis.root_cause:
        return general_account(diagnosis, facts) or _by_kind(diagnosis, None, facts) or reason.remedy
    cited = by_origin(diagnosis, facts)[0][0]
    message = cut(" ".join(message_of(cited, facts)[:MESSAGE_LINES]), SHOWN_OF_MESSAGE)
    demand = demand_of(cited, facts)
    place = f"{cited.file}:{cited.line}: {message}"
    line = facts.line(cited.line) if cited.file == "job.log" else None
    account = account_of(line, facts) if line is not None and not demand else ""
    message = f"{demand} ({place.rstrip('.')})." if demand else account or f"All that the log says is {place}"
    crash = bare_crash(cited, facts)
    return (account if crash else "") or crash or language_account(cited, facts) or message


def _printed(diagnosis: Diagnosis, parts: Sequence[str], facts: Facts, *, understood: bool) -> str:
    """Return what the log itself says about the remedy, as far as it is not said; empty where nothing is to be mended."""
    if diagnosis.action is not Action.FIX_AND_RESUBMIT or not diagnosis.root_cause:
        return ""
    cited = by_origin(diagnosis, facts)[0][0]
    refused = _REFUSED.search(cited.text)
    if diagnosis.reason == "argument_error" and refused is not None and not refused[1].strip():
        return ""  # it names no option
    if diagnosis.reason == "argument_error" and refused is not None:
        return nearest_option(cited, [name for name in refused[1].split() if name.startswith("-")], facts)
    if understood and (instruction := instruction_in("\n".join(message_of(cited, facts)[:MESSAGE_LINES]))):
        own_words, advice_words = (set(LONG_WORDS.findall(words.lower())) for words in (instruction, " ".join(parts)))
        if len(own_words & advice_words) < REPEATED * len(own_words) and not says_already(instruction, " ".join(parts)):
            return f"The message itself asks (job.log:{cited.line}): {instruction}."
    return printed_remedy(cited, " ".join(parts), facts, message=not understood)
