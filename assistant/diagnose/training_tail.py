"""Tell a failure behind the end of a training from one of the training: an upload, an export, a plot that failed is no lost run.

The log has to say that the training is over, and what failed has to be of a kind that comes behind one. A last step without a
word of its end counts only where a save is told of behind it: what fails there may be the final save itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.diagnose.answer import DEEDS, NO_HELP
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import LIBRARY, program_of
from assistant.diagnose.readers.tracebacks import Episode
from assistant.diagnose.stopped import with_checkpoint
from assistant.diagnose.weighing.findings import HARDWARE, SYMPTOMS
from assistant.logs.lines import Line
from assistant.records import Action, Category, Citation, Diagnosis
from assistant.recover.training_end import training_end

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


def with_training_over(found: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis that says that the training is over, where and what failed behind it; as it is for any other failure."""
    if found.reason in ("cancelled", "time_limit") and found.root_cause and facts.case.job is None:
        return _stopped_after(found, facts)
    if not found.root_cause or (found.category is Category.NONE and found.reason != "unknown"):
        return found
    saves, tail = _kind(found.root_cause, facts)
    end = _end_before(found.root_cause[0], facts) if tail else None
    if end is None or (not end.sure and (saves or found.reason in HARDWARE | SYMPTOMS)):
        return found
    result = _result(facts)
    lies = f"; {RESULT_LIES} {result}" if result else ""
    over = f"The training is over ({end.line.text.strip()[:120]}, {_place(end.line, facts)}){lies}; only the {tail} failed"
    mend = f"{NO_RESTART} Mend what is named here and run the {tail} by itself." if tail != TEARDOWN else NO_RESTART
    deed = with_checkpoint(DEEDS[found.action], facts, program_of(found, facts))
    specific = found.advice.replace(deed, "", 1).removesuffix(NO_HELP).strip() if deed else found.advice
    return replace(
        found,
        action=Action.FIX_AND_RESUBMIT,
        nodes=(),
        summary=f"{over}: {found.summary}",
        advice=f"{mend} {specific}",
        phase="end",
        tail=tail if tail != TEARDOWN else "",
    )


def _stopped_after(found: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a stop with the line before it that says that the training was over; as it is where none does."""
    end = _end_before(found.root_cause[0], facts)
    if end is None:
        return found
    said = f"The training was over before ({end.line.text.strip()[:120]}, {_place(end.line, facts)}): nothing of it is lost."
    return replace(found, advice=f"{said} {found.advice}")


def _end_before(cited: Citation, facts: Facts) -> TrainingTail | None:
    """Return the line that says that the training is over, where a failure does not stand before it."""
    for end in ends_of_training(facts):
        behind = cited.file != "job.log" or cited.line > end.line.number
        apart = facts.combined is not None and not facts.combined.comparable(cited.line, end.line.number)
        if behind or apart:
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
        at = next(line for line in reversed(lines) if line.text.strip()[:200] == end.line or end.line in line.text[:2000])
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
    episode = next((one for one in facts.episodes if cited.file == "job.log" and one.first - 1 <= cited.line <= one.last), None)
    words = [*_own_words(episode, facts), *_words_around(episode, facts)] if episode is not None else []
    said = " ".join([*(proof.text for proof in proofs), *words])
    return _SAVES.search(said) is not None, _kind_named(said)


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
