"""Tell a failure of the training from one behind its end, and prove a failed training behind an exit code of 0.

An upload, an export or a plot that failed behind the training is no lost run. The log has to say that the training is over, and
what failed has to be of a kind that comes behind one. A last step without a word of its end counts only where a save is told of
behind it: what fails there may be the final save itself.

A script that pipes its program into `tee`, goes on with `; echo done`, or sets `|| true` ends well whatever became of the
program. What counts as proof is narrow, since a job that did its work must not be started again: training steps, behind the last
of them an exception that nobody caught, or a launcher's word that a process failed; no word that the training is over; and a goal
of the training that was not reached, or, where none is known, a cause that is known and nothing that commonly follows a training.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from assistant.diagnose.advice.stopped import with_checkpoint
from assistant.diagnose.answer import DEEDS, NO_HELP
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import LIBRARY, program_of
from assistant.diagnose.readers.tracebacks import Episode, EpisodeKind
from assistant.diagnose.weighing.findings import HARDWARE, SYMPTOMS
from assistant.diagnose.weighing.outcome import How, outcome_of, tells_failure
from assistant.diagnose.weighing.survival import exception_lived_with, lived_through
from assistant.linear_patterns import LinearPattern, linear_pattern
from assistant.logs.lines import Line
from assistant.logs.shell import WordPiece, commands
from assistant.records import Action, Category, Citation, Diagnosis
from assistant.recover.comparison import LONGEST_END, training_end, training_goal
from assistant.redact import head_of

NO_RESTART = "Do not start the training again: it is over."
RESULT_LIES = "its result lies at"
MOST_LINES = 4000
"""From the end of each file, in which the end of a training and its saves are looked for."""
TEARDOWN = "clean-up"
"""Of which nothing is left to be done again."""
_TAILS = (
    (
        "upload",
        r"upload|push_to_hub|create_repo|create_commit|huggingface-cli|log_artifact|log_model|put_object|api/repos/create"
        r"|\b(?:s3|s5cmd|gsutil|rclone|azcopy|rsync|scp)\b.{0,20}\b(?:cp|sync|copy|mv|to)\b|\brsync[: ]|\bscp[: ]|namespace",
    ),
    ("export", r"export|convert|gguf|onnx|quantiz|merge_and_unload|merge_lora|torchscript|tensorrt|to_hf\b"),
    ("report", r"matplotlib|pyplot|savefig|\bplt\b|plot|confusion_matrix|to_csv|to_latex|to_excel|seaborn|plotly|report|tabulate"),
    ("evaluation", r"evaluat|\btest(?:ing)?\b|run_test|\.test\(|lm_eval|harness|benchmark|predict"),
    ("message", r"smtp|slack|webhook|sendmail|send_mail|notif"),
    (TEARDOWN, r"rmtree|clean_?up|\bunlink\b|shutil\.move|destroy_process_group"),
)
_SAVES = re.compile(
    r"save_checkpoint|save_model|save_state|save_pretrained|torch\.save|_save\b|dist_checkpointing|\.save\(", re.IGNORECASE
)
_RAISED = re.compile(r"^\W{0,3}(?:[A-Za-z_][\w.]{0,100}(?:Error|Exception)|ERROR|CRITICAL)\b")
MOST_AROUND = 3
_NUMBER = re.compile(r"\d+")
_RESULT = re.compile(
    r"(?:\b(?:sav(?:ed|ing)|wr(?:ote|itten|iting)|stored)\b.{0,80}?\b(?:in|to|at|as|into)\b|checkpoint saved:?)[ :'\"`]{1,4}"
    r"(?P<path>(?:[\w.~-]+)?/[^\s'\"`,;:)]{1,300})",
    re.IGNORECASE,
)


_RESULT_BELOW = re.compile(r"\b(?:saved|written|stored)\b.{0,80}\b(?:in|to|at|as|into|directory|folder)\b\W{0,3}$", re.IGNORECASE)
_PATH_ALONE = re.compile(r"\s{0,8}(?P<path>(?:[\w.~-]+)?/[^\s'\"`,;:)]{1,300})\s{0,8}")


class TrainingTail(NamedTuple):
    """Where a log says that the training is over."""

    line: Line
    sure: bool
    """Whether nothing of the training can be lost by what failed behind it."""
    since: int
    """Lines behind it in its file."""


def with_training_over(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis that says that the training is over, where and what failed behind it; as it is for any other failure."""
    if diagnosis.reason in ("cancelled", "time_limit") and diagnosis.root_cause and facts.case.job is None:
        return _stopped_after(diagnosis, facts)
    if not diagnosis.root_cause or (diagnosis.category is Category.NONE and diagnosis.reason != "unknown"):
        return diagnosis
    saves, tail = _kind(diagnosis.root_cause, facts)
    end = _end_before(diagnosis.root_cause[0], facts) if tail else None
    if end is None or (not end.sure and (saves or diagnosis.reason in HARDWARE | SYMPTOMS)):
        return diagnosis
    result = _result(facts)
    lies = f"; {RESULT_LIES} {result}" if result else ""
    over = f"The training is over ({head_of(end.line.text.strip(), 120)}, {_place(end.line, facts)}){lies}; only the {tail} failed"
    mend = f"{NO_RESTART} Mend what is named here and run the {tail} by itself." if tail != TEARDOWN else NO_RESTART
    deed = with_checkpoint(DEEDS[diagnosis.action], facts, program_of(diagnosis, facts))
    specific = diagnosis.advice.replace(deed, "", 1).removesuffix(NO_HELP).strip() if deed else diagnosis.advice
    return replace(
        diagnosis,
        action=Action.FIX_AND_RESUBMIT,
        nodes=(),
        summary=f"{over}: {diagnosis.summary}",
        advice=f"{mend} {specific}",
        phase="end",
        tail=tail if tail != TEARDOWN else "",
    )


def _stopped_after(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a stop with the line before it that says that the training was over; as it is where none does."""
    end = _end_before(diagnosis.root_cause[0], facts)
    if end is None:
        return diagnosis
    text = (
        f"The training was over before ({head_of(end.line.text.strip(), 120)}, {_place(end.line, facts)}): nothing of it is lost."
    )
    return replace(diagnosis, advice=f"{text} {diagnosis.advice}")


def _end_before(cited: Citation, facts: Facts) -> TrainingTail | None:
    """Return the line that says that the training is over, where a failure does not stand before it."""
    for end in ends_of_training(facts):
        is_after = cited.file != "job.log" or cited.line > end.line.number
        apart = facts.combined is not None and not facts.combined.comparable(cited.line, end.line.number)
        if is_after or apart:
            return end
    return None


def ends_of_training(facts: Facts) -> Iterator[TrainingTail]:
    """Yield of each file the line that says that the training is over; none behind which a step stands, or another round of it."""
    files: dict[str, list[Line]] = {}
    for line in facts.lines[-MOST_LINES:]:
        files.setdefault(facts.combined.place(line.number)[0] if facts.combined is not None else "", []).append(line)
    for lines in files.values():
        end = training_end(line.text for line in lines)
        if end is None or not (end.said or end.saved_after):
            continue
        at = next(
            line for line in reversed(lines) if head_of(line.text.strip(), LONGEST_END) == end.line or end.line in line.text[:2000]
        )
        if not facts.progress.after(at.number) and not _said_before(at, lines, facts):
            yield TrainingTail(at, end.saved_after, sum(line.number > at.number for line in lines))


def _said_before(end: Line, lines: Sequence[Line], facts: Facts) -> bool:
    """Tell whether the same was said earlier, and work followed: one round of several is over, not the training."""
    form = _NUMBER.sub("#", end.text)
    same = (line for line in lines if _NUMBER.sub("#", line.text) == form)
    first = next((line.number for line in same if training_end([line.text]) is not None), end.number)
    return facts.progress.after(first) > facts.progress.after(end.number)


def _kind(proofs: Sequence[Citation], facts: Facts) -> tuple[bool, str]:
    """Return whether a save failed, and the kind of what failed behind a training; empty for what may belong to another one."""
    cited = proofs[0]
    episode = next((span for span in facts.episodes if cited.file == "job.log" and span.first - 1 <= cited.line <= span.last), None)
    words = [*_own_words(episode, facts), *_words_around(episode, facts)] if episode is not None else []
    text = " ".join([*(proof.text for proof in proofs), *words])
    return _SAVES.search(text) is not None, _kind_named(text)


def kind_of_tail(episode: Episode, facts: Facts) -> str:
    """Return the kind of what raised an exception, where it is one that comes behind a training; empty for any other."""
    return _kind_named(" ".join(_own_words(episode, facts)))


def _kind_named(words: str) -> str:
    return next((kind for kind, pattern in _TAILS if re.search(pattern, words, re.IGNORECASE)), "")


def _own_words(episode: Episode, facts: Facts) -> Sequence[str]:
    """Return what the job's own frames of a traceback name: files, functions and lines of source; and all that was raised."""
    words: list[str] = []
    for raised in episode.raised:
        words += [raised.text, *(text for _, text in raised.more[:3])]
        for frame in raised.frames:
            source = facts.line(frame.at + 1)
            if not LIBRARY.search(frame.file):
                words += [frame.file.rpartition("/")[2], frame.function, source.text[:300] if source is not None else ""]
    return words


def _words_around(episode: Episode, facts: Facts) -> Sequence[str]:
    """Return the error that was logged with a traceback, and what was raised of it further up, where that has no traceback."""
    around = [episode.first - 1, *range(episode.last + 1, episode.last + 1 + MOST_AROUND)]
    lines = [line.text[:300] for number in around if (line := facts.line(number)) is not None]
    return [text for text in lines if _RAISED.search(text)]


def _result(facts: Facts) -> str:
    """Return where the last save that the log tells of lies, with its line; empty where it tells of none."""
    for line in reversed(facts.lines[-MOST_LINES:]):
        match = _RESULT.search(line.text[:1000])
        if match is None and _RESULT_BELOW.search(line.text[:1000]) and (below := facts.line(line.number + 1)) is not None:
            match = _PATH_ALONE.fullmatch(below.text[:1000])
        if match is not None:
            return f"{match['path'].rstrip('.')} ({_place(line, facts)})"
    return ""


def _place(line: Line, facts: Facts) -> str:
    """Return file and number of a line as people see them."""
    name, number = facts.combined.place(line.number) if facts.combined is not None else ("", line.number)
    return f"{name or 'job.log'}:{number}"


FEWEST_TRAINED_STEPS = 2
"""Distinct training steps, without which a program is not known to have trained."""
MOST_LINES_BEHIND = 8
"""Lines of unknown origin behind the failure, where the goal is known; none where it is not."""
LAST_LINES_OF_FILE = 400
"""From the end of each file, in which the words of an end are looked for."""
MOST_GAPS = 10
FEWEST_CHARACTERS = 3
"""Of the text that a script's own words must have to be told by it."""
_STOPS = re.compile(r"Interrupt|Exit|Stop(?!Iteration)|Prun|Finish|Complet|Signal|Preempt|Cancel|Terminat|Done$", re.IGNORECASE)
"""Names of exceptions by which programs end on purpose."""
_OVER = re.compile(
    r"\b(?:train(?:ing|er)?|fine-?tuning|fit(?:ting)?|run|job|experiment|everything|all epochs)\b.{0,40}"
    r"\b(?:complete[ds]?|finished|done|ended|succeeded|over)\b"
    r"|\b(?:done|finished|completed) (?:train\w*|fine-?tun\w*|fit\w*)|^\W{0,6}(?:all )?(?:done|finished|success)\W{0,6}$"
    r"|train_runtime|early[ _-]?stop|stopp(?:ed|ing) early|\bconverged\b|\bpatience\b|time (?:limit|budget)|walltime"
    r"|\bsav(?:ed|ing) (?:the )?final\b|\bfinal (?:model|checkpoint|weights)\b"
    r"|\bmax_(?:steps|epochs)=?\d* reached|exiting program (?:at|after)",
    re.IGNORECASE,
)
"""Words by which a program says that it has come to an end of its own."""
_OF_TRAINING_OVER = re.compile(
    r"\b(?:train(?:ing|er)?|fine-?tuning|fit(?:ting)?|all epochs)\b.{0,40}\b(?:complete[ds]?|finished|done|ended|succeeded|over)\b"
    r"|\b(?:done|finished|completed) (?:train\w*|fine-?tun\w*|fit\w*)|train_runtime|early[ _-]?stop|stopp(?:ed|ing) early"
    r"|\bconverged\b|\bmax_(?:steps|epochs)=?\d* reached",
    re.IGNORECASE,
)
"""The same of the training itself, and of no other program of its job."""
_COUNT_OF = re.compile(r"(?<![\d/.])(\d{1,12})\s{0,3}(?:/|of)\s{0,12}(\d{1,12})(?![\d/])")
_OF_A_LAUNCHER = re.compile(
    r"^(?:srun|slurmstepd|mpirun|wandb|\[rank\d+\]|\*\*\*|={3,}|-{3,}|\s*<NO_OTHER_FAILURES>|Failures:|Root Cause|"
    r"\s*(?:time|host|rank|exitcode|error_file|traceback)\s+:|\[?[EWIF]\d{4}[ :]|terminate called|\s*what\(\):|"
    r"Fatal Python error|Aborted|Segmentation fault|Killed|Exception ignored|\s+File |\s+\^|Compile with|For debugging consider|"
    r"CUDA kernel errors|Search for|Device-side assertions|real\s|user\s|sys\s|"
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} [ \d]\d )|resource_tracker|\w+Warning\b|destroy_process_group|ProcessGroup|\bNCCL\b"
    r"|elastic|SIGTERM|exitcode",
)
"""What launchers, the interpreter and CUDA print behind an exception, and what `time` and `date` print."""
_AFTER_TRAINING = re.compile(
    r"eval|test|infer|predict|bench|generat|export|convert|merge|upload|push|plot|report|score", re.IGNORECASE
)
"""Names of programs that run behind a training."""
_TRAINS = re.compile(r"train|tun(?:e|ing)|sft|dpo|ppo|grpo|(?:^|_)(?:fit|main|run)\b", re.IGNORECASE)
"""Names of programs that train."""
_SHELL = re.compile(
    r": line \d+:\s+\d+ (?:Killed|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)"
)


class HiddenFailure(NamedTuple):
    """How a training failed of which the scheduler shows nothing."""

    line: Line
    """That proves it."""
    step: int
    """The last one of the training."""
    goal: int | None
    """The step at which it would have ended; None where that is not known."""


def hidden_failure(
    facts: Facts, *, options: Iterable[tuple[str, str]] = (), cause_known: bool = False, step_failed: bool = False
) -> HiddenFailure | None:
    """Return how the training of a job failed that ended with exit code 0; None where its log does not prove it.

    Args:
        facts: Of the job's logs.
        options: Names, normalised, and values of the options of the job's programs.
        cause_known: Whether what is known of failures names the error at the end of the log.
        step_failed: Whether the scheduler shows a step of the job that failed.
    """
    progress = facts.progress
    if len(set(progress.steps)) < FEWEST_TRAINED_STEPS:
        return None
    words = _ScriptWords.of(facts)
    step = int(progress.steps[-1])
    goal = _goal(facts, options)
    if goal is not None and step + _gap(progress.steps) >= goal:
        return None
    if step_failed and (line := _failed_step(facts, raised_only=goal is None)) is not None:
        return HiddenFailure(line, step, goal)
    if progress.learnt or _says_over(facts, words):
        return None
    is_apart = facts.combined is not None and facts.combined.apart
    for episode in reversed(_uncaught(facts)):
        trailing = [line for line in _trailing_lines(episode.last, facts) if not words.explains(line.text)]
        if len(trailing) > (MOST_LINES_BEHIND if goal is not None else 0):
            continue
        kind = kind_of_tail(episode, facts)
        if _AFTER_TRAINING.search(_main_file(episode)) or kind not in ("", "evaluation"):
            continue  # it may come behind a training that another limit has ended
        if goal is None and (is_apart or not cause_known or kind):
            continue
        raised = episode.raised[-1]
        return HiddenFailure(Line(raised.line, raised.text), step, goal)
    ended = _ended_process(facts) if goal is not None else None
    return HiddenFailure(ended, step, goal) if ended is not None else None


def how_hidden(script: str) -> str:
    """Return by what a script ends well although its program failed, and what would tell the scheduler; for people."""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    if re.search(r"(?<!\|)\|(?!\|)", code) and "pipefail" not in code:
        return "its script pipes the program into another one, whose exit code counts; `set -o pipefail` would tell of a failure"
    if re.search(r"\|\|\s*(?:true|:)(?:\s|$)", code):
        return "its script sets `|| true` behind the program, which hides a failure"
    if re.search(r"^\s*trap\b", code, re.MULTILINE):
        return "its script ends in a trap of its own, whose exit code counts"
    return "the last command of its script ended well; `set -e`, or `exit` with the program's own code, would tell of a failure"


def _says_over(facts: Facts, words: _ScriptWords) -> bool:
    """Tell whether a log says that the training is over, or that it stopped of its own accord."""
    own = ([line.text for line in lines if not words.always_says(line.text)] for lines in _files(facts))
    if any(training_end(texts) is not None for texts in own):
        return True
    last = facts.progress.last_line
    inside = {number for episode in facts.episodes for number in episode.lines}
    trailing = [line for line in facts.lines[-LAST_LINES_OF_FILE:] if line.number not in inside]
    if facts.combined is None or not facts.combined.apart:
        trailing = [line for line in trailing if line.number >= last]
    return any(
        _OVER.search(line.text[:1000]) and not tells_failure(line.text) and not words.always_says(line.text) for line in trailing
    )


def _files(facts: Facts) -> Iterator[list[Line]]:
    """Yield the last lines of each file."""
    files: dict[str, list[Line]] = {}
    for line in facts.lines:
        files.setdefault(_file_of(line.number, facts), []).append(line)
    yield from (lines[-LAST_LINES_OF_FILE:] for lines in files.values())


def _file_of(line: int, facts: Facts) -> str:
    return facts.combined.place(line)[0] if facts.combined is not None else ""


def _goal(facts: Facts, options: Iterable[tuple[str, str]]) -> int | None:
    """Return the largest step of those that options, the head of the log and its last step name as the last of all."""
    goals = [goal] if (goal := training_goal(options, (line.text for line in facts.lines[:LAST_LINES_OF_FILE]))) is not None else []
    last = facts.line(facts.progress.last_line)
    counts = [(int(at), int(of)) for at, of in _COUNT_OF.findall(last.text[:2000])] if last is not None else []
    step = int(facts.progress.steps[-1])
    goals += [of for at, of in counts if at in (step, step + 1) and of >= at]
    return max(goals, default=None)


def _gap(steps: Sequence[float]) -> int:
    """Return how many steps may lie between two that are logged."""
    return max([1, *(int(second - first) for first, second in pairwise(steps[-MOST_GAPS:]))])


def _uncaught(facts: Facts) -> list[Episode]:
    """Return the tracebacks behind the last step that ended their program for all that the log shows."""
    return [
        episode
        for episode in facts.episodes
        if episode.kind is EpisodeKind.MAIN
        and episode.raised
        and (episode.first > facts.progress.last_line or not _in_order(episode, facts))
        and not facts.later_steps(episode.last)
        and not _STOPS.search(episode.raised[-1].short)
        and not lived_through(episode, facts)
        and not exception_lived_with(episode, facts)
    ]


def _main_file(episode: Episode) -> str:
    """Return the name of the file in which a traceback begins; empty where it shows no frame."""
    frames = episode.raised[-1].frames
    return frames[0].file.rpartition("/")[2] if frames else ""


def _in_order(episode: Episode, facts: Facts) -> bool:
    return facts.combined is None or facts.combined.comparable(episode.first, facts.progress.last_line)


def _trailing_lines(last: int, facts: Facts) -> list[Line]:
    """Return the lines behind one in its file that are neither of a traceback nor of a launcher."""
    inside = {number for episode in facts.episodes for number in episode.lines}
    own = _file_of(last, facts)
    return [
        line
        for line in facts.between(last + 1, facts.lines_total)
        if line.text.strip()
        and line.number not in inside
        and _file_of(line.number, facts) == own
        and not _OF_A_LAUNCHER.search(line.text[:400])
    ]


def _ended_process(facts: Facts) -> Line | None:
    """Return the line by which a launcher or the shell says that a process failed behind the last step; None where none does."""
    last = facts.progress.last_line
    shell = [line.number for line in facts.lines[-LAST_LINES_OF_FILE:] if _SHELL.search(line.text[:400])]
    exits = [ended.line for ended in facts.exits if ended.code and not ended.victim]
    tasks = [task.line for task in facts.tasks if not task.victim and "xit code 0" not in task.how]
    numbers = sorted(number for number in (*shell, *exits, *tasks) if number > last and not facts.later_steps(number))
    if not numbers or outcome_of(facts).how is How.STOPPED:
        return None
    return facts.line(numbers[0])


def _failed_step(facts: Facts, *, raised_only: bool) -> Line | None:
    """Return the line that proves how the training's own step failed, whatever later commands of the script print; else None.

    What stands behind the launcher's last word on the step is of other programs: it counts only where it speaks of the training.

    Args:
        facts: Of the job's logs.
        raised_only: Whether only an exception of the training program counts, since its goal is not known.
    """
    last = facts.progress.last_line
    numbers = [task.line for task in facts.tasks if task.line > last and "xit code 0" not in task.how]
    if not numbers or facts.later_steps(numbers[-1]) or outcome_of(facts).how is How.STOPPED:
        return None
    if facts.combined is not None and facts.combined.apart:
        return None
    inside = {number for episode in facts.episodes for number in episode.lines}
    lines = [line for line in facts.lines[-LAST_LINES_OF_FILE:] if line.number not in inside and not tells_failure(line.text)]
    if training_end([line.text[:1000] for line in lines]) is not None:
        return None
    if any((_OVER if last <= line.number < numbers[0] else _OF_TRAINING_OVER).search(line.text[:1000]) for line in lines):
        return None
    episodes = [episode for episode in _uncaught(facts) if episode.last < numbers[-1] and not kind_of_tail(episode, facts)]
    own = [episode for episode in episodes if not _AFTER_TRAINING.search(_main_file(episode))]
    if raised_only:  # a program behind the training may have failed: `postprocess.py`
        own = [episode for episode in own if _TRAINS.search(_main_file(episode))]
    if own:
        return Line(own[0].raised[-1].line, own[0].raised[-1].text)
    return None if raised_only or episodes else facts.line(numbers[0])


class _ScriptWords(NamedTuple):
    """What the batch script itself prints."""

    always: tuple[LinearPattern, ...]
    """Whatever became of its program."""
    sometimes: tuple[LinearPattern, ...]
    """Where a condition holds, which may be that the program ended well."""

    @classmethod
    def of(cls, facts: Facts) -> _ScriptWords:
        job = facts.case.job
        always: list[LinearPattern] = []
        sometimes: list[LinearPattern] = []
        for text, conditional in _echoes(job.spec.script if job is not None and job.spec is not None else ""):
            (sometimes if conditional else always).append(text)
        return cls(tuple(always), tuple(sometimes))

    def explains(self, text: str) -> bool:
        return any(_prints(pattern, text) for pattern in (*self.always, *self.sometimes))

    def always_says(self, text: str) -> bool:
        return any(_prints(pattern, text) for pattern in self.always)


def _prints(pattern: LinearPattern, text: str) -> bool:
    return pattern.fullmatch(text.strip()[:4000].encode("utf-8", "replace")) is not None


_OPENS = re.compile(r"(?:^|[;\s])(?:if|case|while|until|for)\s")
_CLOSES = re.compile(r"(?:^|[;\s])(?:fi|esac|done)(?:$|[;\s)&|])")


def _echoes(script: str) -> Iterator[tuple[LinearPattern, bool]]:
    """Yield a pattern for each line that a script prints itself, and whether that hangs on a condition."""
    depth = 0
    for line in script.replace("\\\n", " ").splitlines():
        code = line.strip()
        if not code or code.startswith("#"):
            continue
        depth += len(_OPENS.findall(code))
        conditional = depth > 0 or "&&" in code
        depth = max(0, depth - len(_CLOSES.findall(code)))
        if "echo" not in code and "printf" not in code:
            continue
        for command in commands(code):
            words = [word for word in command.words if word.plain not in ("then", "else", "do", "{")]
            if not words or words[0].plain not in ("echo", "printf"):
                continue
            printed = [word for word in words[1:] if not re.fullmatch(r"-[neE]{1,3}", word.plain)]
            if sum(len(piece.text.strip()) for word in printed for piece in word.pieces) >= FEWEST_CHARACTERS:
                source = r"\s+".join("".join(map(_as_pattern, word.pieces)) for word in printed)
                yield linear_pattern(source, multiline=False), conditional


def _as_pattern(piece: WordPiece) -> str:
    if piece.name or piece.gap:
        return ".*"
    return r"\s+".join(re.escape(part) for part in re.split(r"\s+", piece.text.replace("\\n", "")))
