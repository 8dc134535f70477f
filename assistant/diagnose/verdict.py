"""The verdict: from the facts of a case to one diagnosis, always the same for the same case.

Facts are gathered (`facts`), turned into findings (`findings`), weighed by time, place and role (`weighing`), and set against how
the attempt ended (`termination`). What is left strongest is the cause; nodes are named only with proof (`blame`). Where nothing
holds, the answer is `unknown`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from assistant.content.reasons import Reason
from assistant.diagnose.advice.builds import first_of_build
from assistant.diagnose.advice.particulars import with_particulars
from assistant.diagnose.advice.recorded_ends import with_amounts, with_recorded_end
from assistant.diagnose.answer import advice, checked, placed, summary
from assistant.diagnose.case import Case
from assistant.diagnose.cut_secrets import without_cut_secrets
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge, calibrated, in_proportion
from assistant.diagnose.readers.streams import ended_after_failure
from assistant.diagnose.weighing.blame import blame, rank_behind, straggler, with_places
from assistant.diagnose.weighing.corrections import of_latest_start, of_saved_state
from assistant.diagnose.weighing.external_findings import external_findings
from assistant.diagnose.weighing.failed_items import failed_items
from assistant.diagnose.weighing.findings import ENDINGS, EXTERNAL, HARDWARE, Finding, symptomatic
from assistant.diagnose.weighing.first_failure import last_step, with_last_file, with_lost_exception, with_order
from assistant.diagnose.weighing.loss import spike_of
from assistant.diagnose.weighing.outcome import How, RunOutcome, outcome_of, tells_failure
from assistant.diagnose.weighing.process_exits import excused
from assistant.diagnose.weighing.retries import tried_again
from assistant.diagnose.weighing.rivals import Opinion, contradicted, doubtful, rivals
from assistant.diagnose.weighing.survival import (
    LOOK_AHEAD,
    PYTHON_WARNING,
    SURVIVED_STEPS,
    called_mild,
    exception_lived_with,
    level_of,
    lived_through,
    lived_with,
    request_answered,
    says_it_goes_on,
    work_went_on,
)
from assistant.diagnose.weighing.termination import Termination, decide
from assistant.diagnose.weighing.training_failure import with_training_over
from assistant.diagnose.weighing.weighing import best_of, weigh
from assistant.logs.attempt import LogFileState
from assistant.logs.spikes import Spike
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, NodeFinding, Rival

CITED = 6
"""Most root-cause lines of a diagnosis; the first three are the best."""
WORTH_NAMING = 0.5
"""Confidence from which on a rival speaks against a log in which nothing is wrong."""
FEWEST_LINES = 20
"""Lines without any sign of work that say enough by saying nothing wrong; of fewer it is less sure."""
_OF_A_PROGRAM = re.compile(
    r"\b\d{1,2}:\d{2}\b|\b(?:INFO|DEBUG|WARN(?:ING)?|[Ww]arning)\b|\w+Warning: |^nohup: |^wandb: |\d%|\b\d+/\d+\b"
)
"""Times, levels, launchers and counts: what shows that a few lines are a program's log."""
SYMPTOM = 0.5
"""Confidence, as computed, of what only plain symptoms tell of."""
LAST_WORDS = 3
"""Lines at the end of a log that may tell why it ends there in words that say nothing of a failure."""
OUTLIVED_LINES = 40
"""Lines behind a doubtful cause, none of which tells of a failure, that show that the run outlived it."""
_UNKNOWN = Reason(
    "unknown", "Unknown", Category.NONE, "Nothing in the case holds as a cause.", Action.NONE,
    "Look at the end of the log and at the nodes.",
)  # fmt: skip


def diagnose(case: Case, knowledge: Knowledge, opinions: Sequence[Opinion] = ()) -> Diagnosis:
    """Return why an attempt failed, with what that rests on.

    Args:
        case: What the attempt left.
        knowledge: The rules.
        opinions: Asked in turn while the verdict is doubtful; the first better one holds.

    Raises:
        InputError: The job log cannot be read or is no log.
    """
    return judge(gather(case, knowledge), knowledge, opinions)


def judge(facts: Facts, knowledge: Knowledge, opinions: Sequence[Opinion] = ()) -> Diagnosis:
    """Return what `diagnose` returns, for facts that were gathered with the same knowledge."""
    diagnosis = of_saved_state(conclude(facts, knowledge), facts, knowledge.reasons)
    outcome = outcome_of(facts)
    is_proven = outcome.recorded or outcome.raised or _only_worked(diagnosis)
    if diagnosis.reason == "no_failure" and outcome.how is How.FAILED and is_proven:
        diagnosis = _vetoed(diagnosis, outcome, facts, knowledge)
    elif outcome.how is not How.NOTHING_WRONG:
        diagnosis = _by_outcome(diagnosis, outcome, facts, knowledge)
    diagnosis = with_recorded_end(diagnosis, facts, knowledge.reasons)
    for opinion in opinions:
        better = opinion.ask(facts, diagnosis) if doubtful(diagnosis) else None
        refuted = better is not None and contradicted(better, facts, failed=_ended_badly(facts) or outcome.how in _BADLY)
        if better is not None and not refuted and not _guess_outlived(better, diagnosis, outcome, facts):
            diagnosis = better
    if outcome.how is How.NOTHING_WRONG and _says_enough(diagnosis, facts):
        diagnosis = _by_outcome(diagnosis, outcome, facts, knowledge)
    if diagnosis.reason == "no_failure":
        diagnosis = _of_failed_items(diagnosis, facts, knowledge)
    for opinion in opinions:
        diagnosis = opinion.note(facts, diagnosis)
    diagnosis = in_proportion(calibrated(with_recorded_end(diagnosis, facts, knowledge.reasons), knowledge.curves))
    diagnosis = with_places(with_order(checked(diagnosis, facts), facts), facts)
    diagnosis = with_particulars(diagnosis, facts, knowledge.reasons.get(diagnosis.reason), knowledge.advices)
    diagnosis = with_lost_exception(_never_well(with_last_file(with_amounts(diagnosis, facts), facts), facts, knowledge), facts)
    diagnosis = without_cut_secrets(with_training_over(_told_of_logs(diagnosis, facts), facts), facts)
    if facts.combined is not None:
        return placed(diagnosis, facts.combined.place, facts.combined.label_of)
    return placed(diagnosis, facts.scan.place) if facts.scan is not None and facts.scan.parts else diagnosis


def _ended_badly(facts: Facts) -> bool:
    return facts.case.job is not None and facts.case.job.ended_badly


_ENDED = {
    How.KILLED: "killed",
    How.STOPPED: "cancelled",
    **dict.fromkeys((How.FINISHED, How.GOES_ON, How.NOTHING_WRONG), "no_failure"),
}
_BADLY = (How.KILLED, How.FAILED, How.STOPPED)
_SURE = {How.FINISHED: 0.8, How.GOES_ON: 0.7, How.NOTHING_WRONG: 0.6, How.STOPPED: 0.7, How.KILLED: 0.45}


def _by_outcome(diagnosis: Diagnosis, outcome: RunOutcome, facts: Facts, knowledge: Knowledge) -> Diagnosis:
    """Return what the end of the log alone says where nothing tells why; never that all is well where the end shows a failure.

    A doubtful cause that stands long before an end at which nothing is wrong was outlived.
    """
    if not facts.lines or facts.case.job is not None:
        return diagnosis
    well = outcome.how not in _BADLY
    if diagnosis.reason == "no_failure" and well and outcome.open_at is None:
        return diagnosis
    stopped = outcome.how is How.STOPPED and not facts.progress.lines and doubtful(diagnosis)
    if diagnosis.reason not in ("unknown", "no_failure") and not ((well or stopped) and _overruled(diagnosis, outcome, facts)):
        return diagnosis
    ends = {*(end.line for end in facts.exits), *(task.line for task in facts.tasks)}
    ended = any(not facts.before_leg(line) for line in ends)
    if outcome.how is How.FAILED or ended or facts.kernel or facts.scheduler:
        return diagnosis
    reason = knowledge.reasons.get(_ENDED[outcome.how])
    if reason is None:
        return diagnosis
    cited = outcome.citations()
    words = summary(reason, _OUTCOME_WORDS[outcome.how].format(line=facts.lines_total), (), cited, facts, diagnosis.step)
    brief = outcome.how is How.NOTHING_WRONG and sum(not facts.before_leg(line.number) for line in facts.lines) < FEWEST_LINES
    confidence = _SURE[outcome.how] - (0.25 if brief else 0.0)
    return replace(
        diagnosis,
        reason=reason.name,
        category=reason.category,
        action=reason.action,
        confidence=confidence,
        root_cause=cited,
        summary=words,
        advice=advice(reason, reason.action, ()),
    )


def _says_enough(diagnosis: Diagnosis, facts: Facts) -> bool:
    """Tell whether a log in which nothing is wrong is long enough to say so, and nobody guesses otherwise."""
    has_rival = any(rival.confidence >= WORTH_NAMING and not _outlived(rival, facts) for rival in diagnosis.rivals)
    enough = bool(facts.progress.lines) or len(facts.lines) >= FEWEST_LINES
    return not has_rival and (enough or any(_OF_A_PROGRAM.search(line.text[:400]) for line in facts.lines))


def _outlived(rival: Rival, facts: Facts) -> bool:
    """Tell whether the run lived with a rival's line, or that is an earlier run's or has no word of trouble."""
    match = re.search(r"\bjob\.log:(\d{1,12}): ", rival.speaks_for)
    line = facts.line(int(match[1])) if match is not None else None
    if line is None:
        return False
    cited = Citation("job.log", line.number, line.text, "")
    mild = called_mild(line, facts) or not tells_failure(line.text)
    return mild or facts.before_leg(line.number) or _left_behind(cited, facts)


def _vetoed(diagnosis: Diagnosis, outcome: RunOutcome, facts: Facts, knowledge: Knowledge) -> Diagnosis:
    """Return what failed in place of `no_failure` for a run whose end shows a failure; `unknown` where nothing explains it."""
    errors = [finding for finding in weigh(external_findings(facts, knowledge), facts) if finding.reason not in ENDINGS]
    cause = best_of(errors)
    if cause is not None:
        return _by_cause(cause, errors, errors, facts, knowledge)
    cited = outcome.citations() or diagnosis.root_cause
    unknown = _unknown((), facts, knowledge)
    return replace(
        unknown,
        root_cause=cited,
        summary=f"Its end shows a failure, and nothing tells why: {unknown.summary}",
        rivals=diagnosis.rivals,
    )


def _only_worked(diagnosis: Diagnosis) -> bool:
    """Tell whether nothing but a last step speaks for a good end, behind which words of failure stand."""
    return all(cited.rule == "last progress" for cited in diagnosis.root_cause)


def _overruled(diagnosis: Diagnosis, outcome: RunOutcome, facts: Facts) -> bool:
    """Tell whether a run that ended well by all that stands at its end lived with the cause that was found, or never had it."""
    finished = outcome.how is How.FINISHED
    if diagnosis.reason == "hang":
        return finished and (outcome.recorded or outcome.counted or outcome.concluded)
    if finished and diagnosis.reason not in ENDINGS and diagnosis.root_cause and _lived_with(diagnosis.root_cause[0], facts):
        return True
    if finished and outcome.recorded:
        return not any(_in_traceback(cited, facts) for cited in diagnosis.root_cause)
    if diagnosis.reason in EXTERNAL or not diagnosis.root_cause:
        return False
    if finished and facts.combined is not None and facts.combined.apart:
        end = outcome.lines[-1].number
        elsewhere = [not facts.combined.comparable(cited.line, end) for cited in diagnosis.root_cause if cited.file == "job.log"]
        if elsewhere and all(elsewhere) and not any(_in_traceback(cited, facts) for cited in diagnosis.root_cause):
            return True
    if finished and doubtful(diagnosis) and all(says_it_goes_on(cited.text) for cited in diagnosis.root_cause):
        return True
    symptom = finished and diagnosis.confidence <= SYMPTOM and diagnosis.reason not in ENDINGS | HARDWARE
    return (doubtful(diagnosis) or symptom) and all(_left_behind(cited, facts) for cited in diagnosis.root_cause)


def _left_behind(cited: Citation, facts: Facts) -> bool:
    """Tell whether a log goes on long after a line, or with the work that went on before it."""
    if cited.file != "job.log":
        return False
    episode = next((e for e in facts.episodes if e.first - 1 <= cited.line <= e.last), None)
    if episode is not None:  # behind an exception that nobody caught much may stand that only tears down
        long_after = not episode.stream and facts.lines_total - episode.last >= LOOK_AHEAD
        return long_after or lived_through(episode, facts)
    warned = (PYTHON_WARNING.match(cited.text) or level_of(cited.text) == "warning") and cited.line < facts.lines_total
    long_after = facts.lines_total - cited.line >= OUTLIVED_LINES
    went_on = any(tell(cited.line, facts) for tell in (work_went_on, request_answered, tried_again))
    return bool(warned) or long_after or went_on or excused(cited.line, facts)


def _guess_outlived(guess: Diagnosis, diagnosis: Diagnosis, outcome: RunOutcome, facts: Facts) -> bool:
    """Tell whether a guess about lines that no rule knows cites only what the run went on after."""
    if guess.by is not DecidedBy.MODEL or guess.reason in (diagnosis.reason, *ENDINGS):
        return False
    well = outcome.how not in _BADLY
    lines = [cited for cited in guess.root_cause if cited.file == "job.log"]
    if len(lines) < len(guess.root_cause):
        return False
    if outcome.how in (How.FINISHED, How.GOES_ON) and all(_plain(cited, facts) for cited in lines):
        return True
    return all(
        facts.before_leg(cited.line) or (well and _left_behind(cited, facts)) or facts.later_steps(cited.line) >= SURVIVED_STEPS
        for cited in lines
    )


def _plain(cited: Citation, facts: Facts) -> bool:
    """Tell whether a line has no word of trouble and is none of the last words of its log."""
    following = [line for line in facts.between(cited.line + 1, cited.line + LOOK_AHEAD) if line.text.strip()]
    return len(following) >= LAST_WORDS and not tells_failure(cited.text) and not _in_traceback(cited, facts)


def _lived_with(cited: Citation, facts: Facts) -> bool:
    """Tell whether a line, or the exception of its traceback, is one of many that the run lived with."""
    episode = next((e for e in facts.episodes if cited.file == "job.log" and e.first <= cited.line <= e.last), None)
    if episode is not None:
        return exception_lived_with(episode, facts)
    return cited.file == "job.log" and lived_with(cited.line, facts)


def _in_traceback(cited: Citation, facts: Facts) -> bool:
    return cited.file == "job.log" and any(episode.first <= cited.line <= episode.last for episode in facts.episodes)


_OUTCOME_WORDS = {
    How.FINISHED: "it finished",
    How.GOES_ON: "it goes on at line {line}",
    How.NOTHING_WRONG: "nothing wrong up to line {line}",
    How.STOPPED: "a signal ended it",
    How.KILLED: "SIGKILL ended it",
}


def _never_well(diagnosis: Diagnosis, facts: Facts, knowledge: Knowledge) -> Diagnosis:
    """Return `unknown` in place of `no_failure` for a job that the scheduler calls failed, whoever said so."""
    job = facts.case.job
    if diagnosis.reason != "no_failure" or job is None or not job.ended_badly:
        return diagnosis
    words = f"The scheduler says {job.state}{_code(job)}, and nothing in its logs tells why: {diagnosis.summary}"
    return replace(_unknown((), facts, knowledge), summary=words, rivals=diagnosis.rivals, by=diagnosis.by)


def _code(job: Job) -> str:
    words = ", ".join([f"exit code {job.exit_code}"] * bool(job.exit_code) + [f"signal {job.signal}"] * bool(job.signal))
    return f" ({words})" if words else ""


def _told_of_logs(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Say what was not read: all of it where there is no log at all, else what cannot be opened."""
    unread = [*facts.case.unread, *(facts.combined.unread if facts.combined is not None else ())]
    if facts.case.job is None or not unread:
        return diagnosis
    if not facts.case.has_log:
        return replace(diagnosis, summary=f"{diagnosis.summary} No log of the job could be read: {'; '.join(unread[:3])}.")
    closed = [words for words in unread if f": {LogFileState.UNREADABLE}" in words]
    return replace(diagnosis, summary=f"{diagnosis.summary} Not read: {'; '.join(closed[:3])}.") if closed else diagnosis


def conclude(facts: Facts, knowledge: Knowledge) -> Diagnosis:
    """Return what the rules alone make of the facts; no opinion is asked and no citation checked."""
    considered = external_findings(facts, knowledge)
    findings = weigh(considered, facts)
    errors = [finding for finding in findings if finding.reason not in ENDINGS]
    of_endings = [finding for finding in findings if finding.reason in ENDINGS]
    spike = spike_of(facts)
    ending = decide(errors, of_endings, spike, facts)
    if ending is not None:
        return _by_ending(ending, findings, considered, spike, facts, knowledge)
    cause = best_of(errors or [finding for finding in of_endings if not ended_after_failure(finding, facts.tasks)])
    if cause is None:
        return _unknown(considered, facts, knowledge)
    return _by_cause(cause, errors, considered, facts, knowledge)


def _by_ending(
    ending: Termination,
    findings: Sequence[Finding],
    considered: Sequence[Finding],
    spike: Spike | None,
    facts: Facts,
    knowledge: Knowledge,
) -> Diagnosis:
    reason = knowledge.reasons.get(ending.reason, _UNKNOWN)
    action, nodes = _agreed(reason.action, ending.nodes, reason)
    confidence = round(min(ending.weight, 0.97), 2)
    step = last_step(facts)
    cited = ending.citations[:CITED]
    return Diagnosis(
        reason=reason.name,
        category=reason.category,
        action=action,
        confidence=confidence,
        by=DecidedBy.RULE,
        root_cause=cited,
        nodes=nodes,
        rivals=rivals(reason.name, 1.0, findings, considered, facts, knowledge.reasons, confidence),
        summary=summary(reason, ending.why, nodes, cited, facts, step),
        advice=advice(reason, action, nodes),
        step=step,
        spike_step=spike.step if spike is not None and not spike.counted and reason.name == "loss_spike" else None,
    )


def _by_cause(
    cause: Finding, errors: Sequence[Finding], considered: Sequence[Finding], facts: Facts, knowledge: Knowledge
) -> Diagnosis:
    cause = first_of_build(of_latest_start(cause, errors, facts), errors, facts)
    reason = knowledge.reasons.get(cause.reason, _UNKNOWN)
    action = _asked_for(cause, errors) or reason.action
    nodes = blame(cause, errors, facts)
    if cause.reason == "nccl_timeout_error" and (slow := straggler(facts)) is not None:
        nodes = (slow,)
    action, nodes = _agreed(action, nodes, reason)
    cited = _citations(cause, errors, nodes)
    late = rank_behind(facts) if cause.reason == "nccl_timeout_error" else None
    if late is not None:
        cited = _with_second(cited, Citation("job.log", late[1], late[2], "rank behind"))
    confidence = _confidence(cause, errors)
    step = last_step(facts)
    return Diagnosis(
        reason=reason.name,
        category=reason.category,
        action=action,
        confidence=confidence,
        by=DecidedBy.RULE,
        root_cause=cited,
        nodes=nodes,
        rivals=rivals(reason.name, cause.strength, errors, considered, facts, knowledge.reasons, confidence),
        summary=summary(reason, "", nodes, cited, facts, step) + (f" Rank {late[0]} alone is behind in it." if late else ""),
        advice=advice(reason, action, nodes),
        step=step,
    )


def _of_failed_items(diagnosis: Diagnosis, facts: Facts, knowledge: Knowledge) -> Diagnosis:
    """Return why items of a run failed that came to its end otherwise; with no error of theirs in the log only that they did."""
    items = failed_items(facts)
    if items is None:
        return diagnosis
    errors = [
        finding
        for finding in external_findings(facts, knowledge)
        if finding.file == "job.log" and finding.line in items.error_lines
    ]
    cause = max(errors, key=lambda error: (error.weight, -error.line), default=None)
    failed = (
        replace(diagnosis, action=Action.FIX_AND_RESUBMIT) if cause is None else _by_cause(cause, errors, errors, facts, knowledge)
    )
    return replace(failed, summary=f"{items.sentence} {failed.summary}")


def _asked_for(cause: Finding, errors: Sequence[Finding]) -> Action | None:
    """Return the action of a cause; a device code of the kernel that makes its node suspect asks for a test before a restart."""
    suspect = any(
        f.reason == cause.reason and f.file == "dmesg.log" and f.factor > 0.5 and f.action is Action.CORDON_AND_RESTART
        for f in errors
    )
    return Action.CORDON_AND_RESTART if suspect else cause.action


def _agreed(action: Action, nodes: tuple[NodeFinding, ...], reason: Reason) -> tuple[Action, tuple[NodeFinding, ...]]:
    """Let action and nodes agree: a node with proof against it is set aside, and nobody is named for another action."""
    if nodes and reason.category is Category.INFRASTRUCTURE and action is Action.RESTART_SAME_NODES:
        action = Action.CORDON_AND_RESTART
    return action, nodes if action is Action.CORDON_AND_RESTART else ()


def _citations(cause: Finding, errors: Sequence[Finding], nodes: Sequence[NodeFinding]) -> tuple[Citation, ...]:
    """Return the lines that show the cause: itself, its own episode, the same on other ranks and files."""
    same = [f for f in errors if f.reason == cause.reason and f is not cause and f.factor > 0.1]
    same.sort(key=lambda f: (f.rule != cause.rule, -f.strength, f.line))
    elsewhere = [f for f in same if f.file != cause.file]
    picked = [_cite(cause), *(_cite(f) for f in same[:1]), *(_cite(f) for f in elsewhere[:1])]
    picked += [Citation(cause.file, number, text, cause.rule) for number, text in cause.more]
    picked += [citation for node in nodes for citation in node.citations]
    picked += [_cite(f) for f in same[1:]]
    unique = {(citation.file, citation.line): citation for citation in reversed(picked)}
    ordered = [unique[key] for key in dict.fromkeys((citation.file, citation.line) for citation in picked)]
    return tuple(ordered[:CITED])


def _with_second(cited: tuple[Citation, ...], more: Citation) -> tuple[Citation, ...]:
    remaining = [citation for citation in cited if (citation.file, citation.line) != (more.file, more.line)]
    return (*remaining[:1], more, *remaining[1:])[:CITED]


def _cite(finding: Finding) -> Citation:
    return Citation(finding.file, finding.line, finding.text, finding.rule, str(finding.role))


def _confidence(cause: Finding, errors: Sequence[Finding]) -> float:
    """Return how sure it is: the weight, more where ranks or sources agree, less where another cause is nearly as strong."""
    base = cause.weight * min(cause.factor, 1.0) if not symptomatic(cause) else min(0.75, cause.weight + 0.1)
    agreeing = [f for f in errors if f.reason == cause.reason and f is not cause]
    if agreeing:
        base += 0.04
    if cause.external or any(f.file != cause.file for f in agreeing):
        base += 0.05
    against = max((f.strength for f in errors if f.reason != cause.reason and not symptomatic(f)), default=0.0)
    if against > 0.6 * cause.strength:
        base -= 0.2 * (against / cause.strength - 0.4)
    return round(min(max(base, 0.15), 0.97), 2)


def _unknown(considered: Sequence[Finding], facts: Facts, knowledge: Knowledge) -> Diagnosis:
    reason = knowledge.reasons.get("unknown", _UNKNOWN)
    cited = tuple(Citation("job.log", line.number, line.text, "end of log") for line in facts.lines[-3:] if line.text.strip())
    step = last_step(facts)
    return Diagnosis(
        reason="unknown",
        category=reason.category,
        action=reason.action,
        confidence=0.1,
        by=DecidedBy.RULE,
        root_cause=cited,
        nodes=(),
        rivals=rivals("unknown", 0.1, (), considered, facts, knowledge.reasons, 0.1),
        summary=summary(reason, "nothing in the case holds as a cause", (), (), facts, step),
        advice=advice(reason, reason.action, ()),
        step=step,
    )
