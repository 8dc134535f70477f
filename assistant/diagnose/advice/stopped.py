"""Say of a run that was ended from outside how long it ran, how far it came, who ended it, and whether it ended so before.

All of it is read from the log, each with its line: bars and counts are in `circumstances`, this is what remains where none is
drawn. Which batch system ran the job is told by the words in its log, so that advice names options and records which that system
has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from assistant.diagnose.advice.sentences import with_capital
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import (
    SAVING,
    TIME,
    Bar,
    Setting,
    job_begin,
    last_drawn,
    last_save,
    run_bar,
    run_round,
    setting,
)
from assistant.diagnose.readers.origin import ProgramKind, ProgramOfLog
from assistant.diagnose.readers.streams import stamp
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.logs.lines import Line
from assistant.records import Diagnosis

LINES_OF_EDGE, MOST_OF_EDGE_LINE = 300, 400
"""Lines at either end of a log that are looked at, and characters of each."""


class BatchSystem(NamedTuple):
    """What one batch system calls limits, and where it records how a job ended."""

    name: str
    """`slurm`, `pbs`, `lsf`, `sge`, `condor`, `kubernetes`; empty where the log names none."""
    time: str
    """How more time is asked for."""
    memory: str
    """How more host memory is asked for."""
    gpus: str
    """How GPUs are asked for."""
    record: str
    """Command with `{job}` that shows how a job ended."""


_SLURM = BatchSystem(
    "slurm", "--time", "--mem, --mem-per-cpu", "--gres=gpu:N, --gpus", "sacct -j {job} -o JobID%20,State,ExitCode,End,MaxRSS,ReqMem"
)
_SYSTEMS = (
    _SLURM,
    BatchSystem("pbs", "-l walltime=", "-l mem=, or mem= of the select", "ngpus= of the select", "qstat -xf {job}"),
    BatchSystem("lsf", "-W", "-M, and rusage[mem=]", "-gpu num=N", "bhist -l {job}"),
    BatchSystem("sge", "-l h_rt=", "-l h_vmem=", "-l gpu=N", "qacct -j {job}"),
    BatchSystem("condor", "MaxRuntime of the submit file", "request_memory", "request_gpus", "condor_history -l {job}"),
    BatchSystem(
        "kubernetes", "activeDeadlineSeconds", "resources.limits.memory of the pod", "resources.limits nvidia.com/gpu",
        "kubectl describe pod {job}",
    ),
)  # fmt: skip
_NONE = BatchSystem(
    "", "the time limit of its batch system", "the memory limit of its batch system or container", "from its batch system", ""
)
_WORDS = (
    ("slurm", re.compile(r"slurm|\bsrun: |\bsbatch\b|\*\*\* (?:JOB|STEP) \d", re.IGNORECASE)),
    (
        "pbs",
        re.compile(r"\bPBS\b|PBS_|/pbs/|mom_priv|Resource_List|\bqsub\b.{0,20}-l |ncpus=|\bNCPUs\b|exceeded memory allocation"),
    ),
    ("lsf", re.compile(r"\bLSF\b|LSB_|TERM_(?:MEM|RUN|OWNER|CPU|ADMIN)|LSBATCH|\bbsub\b|Total Requested Memory")),
    ("sge", re.compile(r"\bSGE_|/sge/|h_vmem|h_rt\b|\bqacct\b|gridengine", re.IGNORECASE)),
    ("condor", re.compile(r"condor", re.IGNORECASE)),
    ("kubernetes", re.compile(r"kubernetes|kubelet|kubectl|OOMKilled|\bvcjob\b|\bpods?/|Evicted", re.IGNORECASE)),
)
_POD = re.compile(r"\bpods?/([\w.-]{3,80})")
_PBS_JOB = re.compile(r"(?<![\w-])(\d{3,12})\.[A-Za-z][\w.-]{0,60}(?:\.SC\b|\.OU\b|\s|$)|PBS_JOBID[=: ]+(\S{3,80})")


def batch_system(facts: Facts) -> BatchSystem:
    """Return the batch system that the log names most; one without a name where it names none.

    A case that comes with its job was read from Slurm.
    """
    if facts.case.job is not None:
        return _SLURM
    lines = [
        line.text[:MOST_OF_EDGE_LINE] for line in (*facts.lines[:LINES_OF_EDGE], *facts.lines[LINES_OF_EDGE:][-LINES_OF_EDGE:])
    ]
    count = Counter(name for text in lines for name, pattern in _WORDS if pattern.search(text))
    most_common = count.most_common(1)
    return next((system for system in _SYSTEMS if most_common and system.name == most_common[0][0]), _NONE)


def record_command(facts: Facts) -> str:
    """Return the command that shows how the job of a log ended; empty where system or job are not known."""
    system = batch_system(facts)
    job = facts.job_id
    if system.name in ("pbs", "kubernetes"):
        pattern = _PBS_JOB if system.name == "pbs" else _POD
        job = next((m[1] or m[2] if m.re is _PBS_JOB else m[1] for line in facts.lines if (m := pattern.search(line.text))), job)
    return system.record.format(job=job) if job and system.record else ""


EDGE, NEAR, MOST_OF_LINE, MOST_OF_COUNT = 400, 400, 400, 100
"""Lines at either end of a run in which a time is looked for, and before its end in which a count is; characters read and shown."""
LEAST_RUN, FEWEST = timedelta(minutes=1), 3
"""Runs of which the length is worth a word, and lines of one form from which on the number in them is a count."""
ZONE, MOST_ZONES, SAME_MOMENT = timedelta(minutes=30), 28, timedelta(seconds=45)
"""By which time zones differ, how many of them at most, and what a program is silent for before it is ended while it works."""
AROUND_STOP = 12
"""Lines before a stop that belong to it."""
STOPS = frozenset({"cancelled", "time_limit", "preempted", "killed"})
NEAR_SAVE = 20
"""Lines before a save among which the step that it was made at is logged."""
_STEP_SAID = re.compile(r"(?<![\d.])[1-9]\d{1,9}(?![\d.])")
LAST_CHECKPOINT = "from the last healthy checkpoint"
ANEW = "Start it again"
ENTRY_FIRST = frozenset({"killed.hydra", "killed.airflow_zombie"})
"""Signatures of kills of which an entry of the advice knows more than what holds of any kill."""
_LEARNING = re.compile(r"\b(?:loss|acc(?:uracy)?|perplexity|grad_norm|learning_rate|lr)\b", re.IGNORECASE)
SAVED_NOTHING = "It saved nothing"
_OF_EPOCH = re.compile(r"^[Ee]poch[ :]*\d{1,6}[, ]+")
_EPOCH = re.compile(r"\W{0,8}[Ee]poch\W{0,3}(\d{1,6})\b(?!\s*(?:/|of\b))")
_EXCEEDED = re.compile(r"walltime \d{1,9} exceeded limit (\d{1,9})")
_RUN_TIME = re.compile(r"^\s*Run time :\s+(\d{1,9}) sec")
"""As LSF tells it of the whole job."""
_BEFORE_BAR_ENDS = re.compile(r"^.*%\|.*?(?:it/s|s/it)[^\]]{0,400}\](?:\^C)?(?=.)")
"""A bar behind which, on its own line, a program says something else."""
SHOWN_OF_SAVE, MOST_BEFORE = 240, 2000
"""Characters of a save that are shown, and lines before a stop in which words of failure are looked for."""
_DIGITS, _LAST_NUMBER = re.compile(r"\d+"), re.compile(r"(?<![\d.])(\d{1,12})(?![\d.])\D{0,40}$")
_STOP = re.compile(
    r"\[?\d{4}-\d\d-\d\dT[\d:.]{8,16}\]? ?(?:error: )?\*\*\*|slurm(?:step)?d\S{0,40}: error:|srun: |\*\*\* (?:JOB|STEP) "
)
_COUNTS = re.compile(
    r"\b(?:(?:global_?)?steps?|iter(?:ation)?s?|epochs?|batch(?:es)?|updates?|samples?|items?|rows|files|images|processed|progress)\b"
    r"['\"\s|:=#\[(]{1,16}\d",
    re.IGNORECASE,
)
_WHOLE = re.compile(r"\b(?:total|number of|max\w*|num)\b", re.IGNORECASE)
"""Words of what is to be done, and not of what was."""
_SENT = re.compile(
    r"from PID (?P<pid>\d{1,10})\b(?:.{0,20}\buid (?P<uid>\d{1,10}))?|sent by (?P<who>[\w ./()=-]{3,60}?)(?:[.,;]|$)"
)
_PACKED = re.compile(r"SIG(?:TERM|INT|KILL|HUP) \(@0x(?P<packed>[0-9a-f]{1,16})\)")
_LOOKED_FOR = re.compile(
    r"\b[Nn]o (?:check-?point|ckpt|save)s?(?: \w{1,20}){0,2} (?:at|in|under) ['\"]?(?P<path>[\w.~-]{0,80}/[^\s'\",;]{1,300})"
)
_NO_RECORDS = (
    "look at what can: a kill by hand, the end of the session or shell that it was started from, or the system itself "
    "(journalctl, dmesg -T)"
)


def standing(diagnosis: Diagnosis, facts: Facts, program: ProgramOfLog) -> str:
    """Return how far the run came and how long the rest takes, by the outermost bar, round or step; empty where none shows."""
    terminated = diagnosis.reason == "dataloader_killed" and any(
        "signal: Terminated" in cited.text for cited in diagnosis.root_cause[:1]
    )
    if not (diagnosis.reason in STOPS or terminated) or not facts.lines or facts.case.job is not None:
        return ""
    bar = run_bar(facts)
    if diagnosis.reason == "time_limit":
        return f"{_time_left(bar, diagnosis, facts, program)}{_looks_for(facts)}"
    words = ""
    if diagnosis.reason == "cancelled" and not diagnosis.rivals and _untroubled(diagnosis, facts):
        words = "Nothing before it tells of a failure."
    if bar is not None:
        words += f" It stood at {bar.position} of {bar.total} after {clock(bar.spent_s)} (job.log:{bar.line})."
    elif (count := run_round(facts)) is not None:
        words += f" It was at {count}."
    elif (epoch := _epoch(facts)) is not None:
        inside = _OF_EPOCH.sub("", last_drawn(facts))
        words += f" It was in epoch {epoch[0]}, at {inside}." if inside else f" It was in epoch {epoch[0]} (job.log:{epoch[1]})."
    elif diagnosis.step and facts.points:
        words += f" It had made step {diagnosis.step}."
    elif drawn := last_drawn(facts):
        words += f" The last bar that was drawn is {drawn}."
    elif last := last_count(facts, _first_cited(diagnosis)):
        words += f" Its last count is {last}."
    if bar is None and (length := ran_for(facts)) is not None:
        words += f" It had run for {clock(int(length.total_seconds()))}."
    if diagnosis.reason == "cancelled" and (before := same_end_before(diagnosis, facts)):
        words += f" An earlier run in this file ended the same way ({before}), so look for what does that again and again."
    in_advice = diagnosis.reason == "killed" or (diagnosis.reason == "preempted" and program.trains and program.steps > 0)
    words = words.strip()
    shows = last_save(facts) is not None or (diagnosis.reason == "preempted" and not in_advice)
    return (
        f"{words} {saved(facts)}{_looks_for(facts)}" if words and shows and not in_advice else f"{words}{_looks_for(facts)}".strip()
    )


def _epoch(facts: Facts) -> tuple[str, int] | None:
    """Return the last epoch that a line of the last attempt begins with, which says not of how many; None without one."""
    for line in reversed(facts.lines):
        if line.number < facts.progress.leg:
            return None
        if "poch" in line.text and (match := _EPOCH.match(facts.streams.body(line.text[:MOST_OF_LINE]).text)):
            return match[1], line.number
    return None


def _first_cited(diagnosis: Diagnosis) -> int:
    return min((cited.line for cited in diagnosis.root_cause if cited.file == "job.log"), default=0)


def _looks_for(facts: Facts) -> str:
    """Return where the program looks for a save at its start, which has to be seen to before the next one; empty where unsaid."""
    place = looked_for_save(facts)
    return (
        f" At its start it looked for a save at {place} and had none: see that one lies there before it starts again."
        if place
        else ""
    )


def _untroubled(diagnosis: Diagnosis, facts: Facts) -> bool:
    """Tell whether no line of the last attempt before the first cited one has a word of failure."""
    first = _first_cited(diagnosis)
    lines = [line for line in facts.lines if facts.progress.leg <= line.number < first]
    early = any(facts.progress.leg <= episode.first < first for episode in facts.episodes)
    return bool(lines) and not early and not any(tells_failure(line.text[:MOST_OF_LINE]) for line in lines[-MOST_BEFORE:])


def _time_left(bar: Bar | None, diagnosis: Diagnosis, facts: Facts, program: ProgramOfLog) -> str:
    """Return what the rest of the work wants of the next time limit."""
    option = batch_system(facts).time
    if program.kind is ProgramKind.SERVING:
        return f"A server has no end of its own: ask for as much time ({option}) as it is to serve."
    save = last_save(facts)
    if bar is None:
        return _without_bar(diagnosis, facts, program)
    stood = f"It stood at {bar.position} of {bar.total} after {clock(bar.spent_s)} (job.log:{bar.line})"
    if save is not None:
        time_left = f"the rest takes about {clock(bar.left_s)} at that rate"
        return f"{stood}, and {time_left}: ask for that much ({option}), and start from that save."
    length = ran_for(facts)
    ran_s = int(length.total_seconds()) if length is not None else 0
    whole = clock(max(ran_s, bar.spent_s) + bar.left_s)
    first = "" if ran_s > bar.spent_s else ", and what came before that loop on top (at least the time that it had and the rest)"
    return (
        f"{stood}, and the rest takes about {clock(bar.left_s)} at that rate: from the start it wants {whole} ({option}){first}, "
        "unless it saves on the way and goes on from there."
    )


def _without_bar(diagnosis: Diagnosis, facts: Facts, program: ProgramOfLog) -> str:
    """Return what is to be asked for where no bar tells how much is left: by how long it ran, and what it counted last."""
    length, limit, save, option = ran_for(facts), _limit(facts), last_save(facts), batch_system(facts).time
    count = run_round(facts)
    stood = f"it was at {count}" if count is not None else ""
    if not stood and (last := last_count(facts, _first_cited(diagnosis))):
        stood = f"its last count is {last}"
    if not stood and (drawn := last_drawn(facts)):
        stood = f"the last bar that was drawn is {drawn}"
    ran = f"it had run for {clock(int(length.total_seconds()))}" if length is not None else ""
    stood_at = " and ".join(words for words in (ran, stood) if words)
    stood_at = f"{with_capital(stood_at)}. " if stood_at else ""
    if save is not None:
        return f"{stood_at}Ask for more time ({option}) where the rest does not fit, and start so that it goes on from that save."
    most = f", {limit}," if limit else ""
    unsaved = saved(facts)
    if program.trains and not unsaved.startswith(SAVED_NOTHING):
        return (
            f"{stood_at}Start it so that it goes on from its last checkpoint; where it writes none (the log shows no save), the "
            f"same limit{most} ends it at the same place: then ask for more time ({option}), or let it save first."
        )
    return (
        f"{stood_at}Under the same limit{most} it ends at the same place: ask for more time ({option}), or let it save and go on "
        f"from there. {'' if unsaved.startswith(SAVED_NOTHING) else unsaved}"
    ).strip()


def learns(facts: Facts) -> bool:
    """Tell whether a run shows numbers of a training, in a metric or on the line of its last step."""
    last = facts.line(facts.progress.last_line)
    return bool(facts.points) or (last is not None and _LEARNING.search(last.text[:MOST_OF_LINE]) is not None)


def _limit(facts: Facts) -> str:
    """Return the limit of time, where the batch system or the batch script in the log says it; empty where neither does."""
    for line in facts.lines:
        if line.number >= facts.progress.leg and (exceeded := _EXCEEDED.search(line.text[:MOST_OF_LINE])):
            return f"{clock(int(exceeded[1]))} (job.log:{line.number})"
        if line.number >= facts.progress.leg and line.text.startswith("#") and (match := TIME.search(line.text[:MOST_OF_LINE])):
            return str(Setting(match["name"], match["value"], line.number))
    return ""


def saved(facts: Facts, before: int | None = None) -> str:
    """Return which save is the last that the log shows, or that it shows none."""
    save = last_save(facts, before)
    if save is not None:
        text = _BEFORE_BAR_ENDS.sub("", save.text).strip()
        if len(text) > SHOWN_OF_SAVE:
            text = cut(text, SHOWN_OF_SAVE)
        step = _step_of(save, facts)
        place = "of an earlier job in the same file" if save.number < job_begin(facts) else "before it" if before else ""
        return f"The last save that the log shows{f' {place}' if place else ''}: job.log:{save.number}: {text}{step}."
    interval = setting(facts, SAVING, facts.lines[-1].number) if facts.lines else None
    if interval is not None and facts.progress.steps and 0 < max(facts.progress.steps) < int(interval.value):
        reached = int(max(facts.progress.steps))
        return f"{SAVED_NOTHING}: {interval}, and it came to step {reached}; lower that before it starts again."
    return "The log shows no save: where there is none, it begins at the start."


def with_checkpoint(deed: str, facts: Facts, program: ProgramOfLog) -> str:
    """Return the deed with the checkpoint that the log shows, or without any where the program has none to go on from."""
    if LAST_CHECKPOINT not in deed or facts.case.job is not None or not facts.lines:
        return deed
    if last_save(facts) is not None:
        return f"{deed} {saved(facts)}"
    anew = (
        deed.replace(f"Restart {LAST_CHECKPOINT}", ANEW)
        .replace(f"restart {LAST_CHECKPOINT}", ANEW.lower())
        .replace(f"the option that goes on {LAST_CHECKPOINT}", "the option that goes on")
    )
    return f"{anew} {saved(facts)}" if program.trains and program.steps else anew


def _step_of(save: Line, facts: Facts) -> str:
    """Return the step at which a save was made, where its own line has no number and one was logged right before it."""
    if facts.metric_file != "job.log" or _STEP_SAID.search(save.text):
        return ""
    near = (point for point in reversed(facts.points) if save.number - NEAR_SAVE <= point.line <= save.number and not point.counted)
    point = next(near, None)
    return f" (at step {point.step}, job.log:{point.line})" if point is not None else ""


def clock(seconds: int) -> str:
    """Return a duration as people write it."""
    return f"{seconds // 3600} h {seconds % 3600 // 60:02} min" if seconds >= 3600 else f"{seconds // 60} min {seconds % 60:02} s"


def ran_for(facts: Facts) -> timedelta | None:
    """Return how long the last attempt ran by the first and the last time that its lines tell; None where they do not tell both."""
    if not facts.lines:
        return None
    first, last = max(facts.progress.leg, job_begin(facts)), facts.lines[-1].number
    head, tail = facts.between(first, first + EDGE), facts.between(max(first, last - EDGE), last)
    if (used := next((match for line in tail if (match := _RUN_TIME.match(line.text[:MOST_OF_LINE]))), None)) is not None:
        return timedelta(seconds=int(used[1])) if int(used[1]) >= LEAST_RUN.total_seconds() else None
    year = next((time.year for line in (*reversed(tail), *head) if (time := stamp(line.text[:MOST_OF_LINE])) is not None), None)
    start = next((time for line in head if (time := stamp(line.text[:MOST_OF_LINE], year))), None)
    if first > 1 and start is not None:
        before = facts.between(max(1, first - EDGE), first - 1)
        previous = next((time for line in reversed(before) if (time := stamp(line.text[:MOST_OF_LINE], year))), None)
        stopped = any(_STOP.search(line.text[:MOST_OF_LINE]) for line in before)
        if (
            previous is not None and not stopped and timedelta() <= start - previous <= LEAST_RUN
        ):  # the same job began its work anew
            first_lines = facts.between(1, EDGE)
            start = next((time for line in first_lines if (time := stamp(line.text[:MOST_OF_LINE], year))), start)
    ended = next((time for line in reversed(tail) if (time := stamp(line.text[-MOST_OF_LINE:], year))), None)
    if start is None or ended is None:
        return None
    ended -= _apart(ended, tail, year)
    return ended - start if ended - start >= LEAST_RUN else None


def _apart(ended: datetime, tail: Sequence[Line], year: int | None) -> timedelta:
    """Return how far the clock of the batch system is ahead of the program's, where their last times differ by whole zones."""
    own = (stamp(line.text[:MOST_OF_LINE], year) for line in reversed(tail) if _STOP.search(line.text[-MOST_OF_LINE:]) is None)
    last = next((time for time in own if time is not None), None)
    if last is None:
        return timedelta()
    zones = round((ended - last) / ZONE)
    same_moment = abs(ended - last - zones * ZONE) <= SAME_MOMENT
    return zones * ZONE if same_moment and 0 < abs(zones) <= MOST_ZONES else timedelta()


def last_count(facts: Facts, before: int) -> str:
    """Return the last line up to one that counts what was done, as `job.log:7: step 900`; empty where none is sure to.

    A line counts where it says so (step, epoch, samples, ...), or where its form comes again and again with a higher number.
    """
    lines = [line for line in facts.between(max(facts.progress.leg, before - NEAR), before) if line.text.strip()]
    forms: dict[str, list[tuple[int, Line, str]]] = {}
    for line in lines:
        text = _STOP.split(facts.streams.body(line.text[:MOST_OF_LINE]).text, maxsplit=1)[0].strip()
        match = _LAST_NUMBER.search(text)
        if match is not None and len(text) > len(match[1]) - (match.start() == 0):
            forms.setdefault(_DIGITS.sub("0", text), []).append((int(match[1]), line, text))
    rising = [
        counts[-1]
        for form, counts in forms.items()
        if (len(counts) >= FEWEST and all(low[0] < high[0] for low, high in pairwise(counts)))
        or (_COUNTS.search(form) and not _WHOLE.search(form) and counts[-1][0] > 0)
    ]
    count = max(rising, key=lambda entry: entry[1].number, default=None)
    return f"job.log:{count[1].number}: {cut(count[2], MOST_OF_COUNT)}" if count is not None else ""


def sender(facts: Facts, diagnosis: Diagnosis) -> str:
    """Return who sent the signal, as far as the log says it: a process, an account; empty where it says nothing."""
    lines = [cited.text for cited in diagnosis.root_cause if cited.file == "job.log"]
    lines += [line.text for line in facts.lines[-NEAR // 4 :]]
    for text in lines:
        match = _SENT.search(text[: 4 * MOST_OF_LINE]) if "IG" in text or "ent by" in text else None
        if match is None:
            continue
        if match["who"]:
            return match["who"].strip()
        packed = _PACKED.search(text)
        uid = match["uid"] or (str(int(packed["packed"], 16) >> 32) if packed is not None else "")
        sent = int(packed["packed"], 16) & 0xFFFFFFFF if packed is not None else int(match["pid"])
        account = f" of the account with uid {uid}" if uid and sent == int(match["pid"]) else ""
        return f"process {match['pid']}{account}"
    return ""


def same_end_before(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return the line by which an earlier run in the same file ended as this one did; empty without one."""
    cited = [citation for citation in diagnosis.root_cause if citation.file == "job.log" and len(citation.text) <= MOST_OF_LINE]
    forms = {_DIGITS.sub("0", facts.streams.body(citation.text).text.strip()) for citation in cited}
    starts = tuple({citation.text[:4] for citation in cited})
    end = max((citation.line for citation in cited), default=0) - AROUND_STOP
    own = [episode for episode in facts.episodes if any(citation.line in episode.lines for citation in cited)]
    earlier = [
        line.number
        for line in facts.lines
        if line.number < end
        and not any(episode.first - AROUND_STOP <= line.number <= episode.last for episode in own)
        and len(line.text) <= MOST_OF_LINE
        and line.text.startswith(starts)
        and _DIGITS.sub("0", facts.streams.body(line.text).text.strip()) in forms
    ]
    return f"job.log:{earlier[-1]}" if earlier else ""


def looked_for_save(facts: Facts) -> str:
    """Return where the program looked for a save at its start and found none, with its line; empty where it does not say so."""
    for line in facts.lines:
        if line.number >= facts.progress.leg and (match := _LOOKED_FOR.search(line.text[:MOST_OF_LINE])):
            return f"{match['path']} (job.log:{line.number})"
    return ""


def who_knows(facts: Facts) -> str:
    """Return who can tell what ended a run: the records of a batch system only where the log shows one."""
    if batch_system(facts).name:
        return "the records of the batch system do (a time limit, a preemption or a user)"
    return f"no batch system shows in it, so {_NO_RECORDS}"


_OWN_EXIT = re.compile(r"exited unexpectedly with exit code ([1-9]\d{0,2})\b")


def worker_exit(texts: Sequence[str]) -> str:
    """Return what to look at where a worker of a loader ended by itself and nothing killed it; empty where none did."""
    code = next((match[1] for text in texts if (match := _OWN_EXIT.search(text))), "")
    if not code:
        return ""
    return (
        f"A worker of the loader ended by itself, with exit code {code}: no memory ran out and nobody killed it, but the code of "
        "the data set raised an exception or called exit() there. Run it once with num_workers=0, which gives the whole "
        "traceback, and look for an exit() or quit() that is left of debugging."
    )


def first_exit(facts: Facts) -> str:
    """Return which task ended with a code of its own in a step whose other tasks srun killed; empty where none did."""
    task = next((task for task in facts.tasks if task.by_itself and task.code and task.line >= facts.progress.leg), None)
    if task is None or not task.tasks:
        return ""
    number = task.tasks[0]
    return (
        f"Task {number} on {task.host} failed, with exit code {task.code} (job.log:{task.line}), and srun killed the others of the "
        f"step after that: no memory ran out. What task {number} printed says why: look into the other file of the job (stderr or "
        "stdout), or start it once with srun --label, or --output=%x-%j-%t.out, which gives each task a file of its own."
    )
