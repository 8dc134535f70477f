"""Find what went wrong before the cited line and may be why: an installation, a command of the script, a full memory.

It is offered as a place to look at first, never as the cause: which line is the cause was decided before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.diagnose.advice.decisive import failed_set_up
from assistant.diagnose.answer import cut
from assistant.diagnose.compiling import compiler_account, pip_account
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.exceptions import is_slip
from assistant.diagnose.readers.origin import LIBRARY, raised_at
from assistant.diagnose.readers.tracebacks import QUOTING
from assistant.records import Action, Citation, Diagnosis

SHOWN, SHOWN_OF_FIRST, LINES_OF_FIRST = 200, 320, 4
FARTHEST, BEHIND = 5000, 200
"""Lines before the cited one that are looked at; behind it only for what a tool printed."""
_SET_UP = re.compile(
    r"^ERROR: (?:No matching distribution|Could not find a version|Failed (?:building|to build)|Could not open requirements)"
    r"|^ERROR: Cannot install"
    r"|error: subprocess-exited-with-error|(?:conda|mamba|module|source|activate|pip\d?): (?:command )?not found"
    r"|activate: No such file"
    r"|EnvironmentNameNotFound|Could not find conda environment|EnvironmentLocationNotFound|CommandNotFoundError: .{0,60}conda"
    r"|Lmod has detected the following error|Unable to locate a modulefile|ModuleNotFoundError: .{0,40}setup\.py"
)
_STEP = re.compile(
    r"(?:^|[\s/])(?:cp|mv|tar|unzip|wget|curl|cd|mkdir|rsync|scp|git|ln|gzip|aws|gsutil|line \d{1,5}): .{0,200}"
    r"(?:No such file|cannot |[Ff]ailed|error|denied|not found|No space)|^fatal: |CUDA out of memory|torch\.OutOfMemoryError"
    r"|No space left on device|[Dd]isk quota exceeded|: line \d{1,5}:\s+\d+ Killed"
)
_THINGS = (
    r"(?:samples|images|files|records|rows|examples|items|time series|sequences|batches|documents|videos|graphs|pairs|entries|steps"
    r"|training data)"
)
_EMPTY = re.compile(
    rf"(?<![\d.,/:-])0 {_THINGS}\b|\b(?:no|No) {_THINGS} (?:were |was )?(?:found|loaded|left)"
    rf"|(?:[Ll]ength|[Nn]umber|[Nn]um|[Ss]ize|[Cc]ount)\b[^:=]{{0,20}}(?:{_THINGS}|data ?set)[^:=]{{0,20}}[:=]\s*0\s*$"
    r"|[Ss]teps(?:/| per |_per_)epoch\W{0,4}0\b|across ranks is zero"
)
_COMPILER = re.compile(r"(?:^|\s)(?:fatal )?error: (?!subprocess|metadata|legacy|command )|CMake Error at|undefined reference to")
ANNOUNCES = re.compile(
    r"Caught \w{1,60} in |See root cause above|Failed core proc|data reader raises an exception|detected by the operating system"
    r"|\[SignalInfo: "
)
"""Exceptions that only tell of another one."""
_CONTROL = frozenset(
    {"KeyError", "StopIteration", "AttributeError", "IndexError", "LookupError", "ImportError", "ModuleNotFoundError", "Empty"}
)
"""Exceptions by which programs look whether something is there; what is raised while they are handled tells more."""
HANDLER = 20
"""Lines of source below the line that raised among which its handler stands."""
SAME = 40
"""Characters of a message by which another one repeats it."""
_DIGITS = re.compile(r"\d+")
_ENVIRONMENT = re.compile(r"/envs/[^/]{1,80}/lib/|/\.?v?env[^/]{0,40}/lib(?:64)?/python")
_OF_MACHINES = frozenset({"ecc_error", "nvlink_error", "node_failure", "preempted", "no_failure"})
"""Reasons with which the set-up of the script has nothing to do."""
_NO_NUMBER = re.compile(r"RuntimeWarning: (?:invalid value|overflow|divide by zero) encountered")
"""What NumPy says when a calculation goes wrong and goes on."""
_NO_PROGRAM = re.compile(r"(?:^|/)(?:sh|dash|bash|zsh): (?:(?:line )?\d{1,5}: )?[\w./-]{1,60}: (?:command )?not found")
"""What a shell says of a program that a line of code called through it."""
_EXPLAINING = {
    "called_process_error": (_COMPILER,),
    "import_error": (_SET_UP,),
    "file_not_found_error": (_SET_UP, _STEP),
    "permission_error": (_STEP,),
    "dataset_loading_error": (_STEP, _EMPTY),
    "model_loading_error": (_STEP,),
    "zero_division_error": (_EMPTY,),
    "index_error": (_EMPTY, _NO_NUMBER, _NO_PROGRAM),
    "value_error": (_EMPTY, _NO_NUMBER, _NO_PROGRAM),
    "runtime_error": (_EMPTY,),
    "assertion_error": (_EMPTY, _NO_NUMBER),
    "type_error": (_EMPTY,),
    "attribute_error": (_SET_UP, _EMPTY),
    "key_error": (_EMPTY,),
}
"""By reason: what may have led to it when it stands before it in the same attempt."""


def handled_before(found: Diagnosis, facts: Facts) -> str:
    """Return a sentence about the first exception of the chain that the cited one ends; empty where the cited one is the first."""
    cited = found.root_cause[0] if found.root_cause else None
    known = raised_at(cited, facts) if cited is not None else None
    if cited is None or known is None:
        return ""
    first = known[0].raised[0]
    words = first.message.strip() or first.short
    if first.short in QUOTING or not first.message.strip() or ANNOUNCES.search(first.text):
        return ""
    same = _DIGITS.sub("0", words[:SAME])
    shown = any(other.line == first.line or same in _DIGITS.sub("0", other.text) for other in found.root_cause[:1])
    if shown or first.line >= cited.line or first.short in _CONTROL:
        return ""
    more = [line.strip() for _, line in first.more[:LINES_OF_FIRST] if line.strip()]
    text = cut(" ".join([facts.streams.body(first.text).text.strip(), *more]), SHOWN_OF_FIRST)
    frame = next((frame for frame in reversed(first.frames) if frame.line and not LIBRARY.search(frame.file)), None)
    place = f", raised from {frame.file}:{frame.line}" if frame is not None else ""
    sentence = f"job.log:{first.line}: {text.rstrip('.')}{place}"
    if handler_failed(found, facts):
        return f"Mend the error that came first ({sentence}); the cited one came while that was handled."
    came = f"Another error came first ({sentence}), and the cited one while it was handled"
    return f"{came}: mend the first, unless it was expected." if found.action is Action.FIX_AND_RESUBMIT else f"{came}."


def handler_failed(diagnosis: Diagnosis, facts: Facts) -> bool:
    """Tell whether the cited exception came while the first of its chain was handled or printed, and not of what the job does."""
    known = raised_at(diagnosis.root_cause[0], facts) if diagnosis.root_cause else None
    if known is None:
        return False
    own = [
        [frame for frame in raised.frames if frame.line and not LIBRARY.search(frame.file)]
        for raised in (known[0].raised[0], known[1])
    ]
    if known[1].frames and known[1].frames[-1].function in ("__repr__", "__str__", "__format__"):
        return known[0].raised[0] is not known[1]  # it came while the first was put into words
    if not own[0] or not own[1]:
        return False
    last = own[1][-1]
    return any((f.file, f.function) == (last.file, last.function) and 0 < last.line - f.line <= HANDLER for f in own[0])


def explained_by(cited: Citation, facts: Facts) -> set[int]:
    """Return the lines of the exceptions that a cited one explains: of a look-up that it puts into words, and of slips behind it.

    A slip in the handler that was to report the cited one is no cause beside it.
    """
    traceback = raised_at(cited, facts)
    if traceback is None or ANNOUNCES.search(cited.text):
        return set()
    episode, last = traceback
    chain = episode.raised
    slips = {raised.line for at, raised in enumerate(chain) if raised.line > cited.line and is_slip(chain, at)}
    if not last.message.strip() or last.short in _CONTROL:
        return slips
    return slips | {raised.line for raised in episode.raised if raised.line < cited.line and raised.short in _CONTROL}


def look_first(found: Diagnosis, facts: Facts) -> str:
    """Return a sentence about the earliest line of the same attempt that may be why the cited one came; empty without any."""
    patterns = _EXPLAINING.get(found.reason, ())
    if found.root_cause and found.reason not in _OF_MACHINES and (words := _set_up(found.root_cause[0], found.reason, facts)):
        return words
    if found.root_cause and found.reason in ("called_process_error", "runtime_error", "import_error"):
        account = compiler_account(found.root_cause[0], facts) or pip_account(found.root_cause[0], facts)
        if account:
            return account
    if not patterns or not found.root_cause or found.root_cause[0].file != "job.log" or facts.combined is not None:
        return ""
    cited = found.root_cause[0]
    line = _earliest(patterns, cited, facts)
    if line is None:
        return ""
    text = line[1] if len(line[1]) <= SHOWN else f"{line[1][:SHOWN]}…"
    if line[0] == cited.line:
        return ""
    where = "what came before it" if line[0] < cited.line else "what it printed"
    return f"Look first at {where} (job.log:{line[0]}: {text}): it may be why."


def _set_up(cited: Citation, reason: str, facts: Facts) -> str:
    """Return that the environment had not been set up before a cited line, which a restart would meet again."""
    line = failed_set_up(facts, cited.line) if cited.file == "job.log" else None
    if line is None or (reason != "import_error" and _in_environment(cited, facts)):
        return ""
    text = line.text.strip()
    said = f"job.log:{line.number}: {text if len(text) <= SHOWN else f'{text[:SHOWN]}…'}"
    if reason == "cancelled":
        return f"Its script could not set up its environment ({said})."
    conda = "conda" in text or "mamba" in text
    how = (
        ' (source etc/profile.d/conda.sh of the conda installation, or eval "$(conda shell.bash hook)", before conda activate)'
        if conda
        else ""
    )
    return f"Mend first what failed in the script before that ({said}){how}: the program ran without the environment that is meant."


def _in_environment(cited: Citation, facts: Facts) -> bool:
    """Tell whether the traceback of a cited line shows the interpreter of an environment of its own, which was active after all."""
    raised = raised_at(cited, facts)
    return raised is not None and any(_ENVIRONMENT.search(frame.file) for frame in raised[1].frames)


def _earliest(patterns: Sequence[re.Pattern[str]], cited: Citation, facts: Facts) -> tuple[int, str] | None:
    inside = {number for episode in facts.episodes for number in episode.lines}
    for line in facts.lines:
        if line.number >= cited.line + (BEHIND if _COMPILER in patterns else 0):
            return None
        if line.number < max(facts.progress.leg, cited.line - FARTHEST) or (
            line.number in inside and "OutOfMemory" not in line.text
        ):
            continue
        body = facts.streams.body(line.text[:1000]).text.strip()
        if any(pattern.search(body) for pattern in patterns) and facts.progress.before(cited.line) == facts.progress.before(
            line.number
        ):
            return line.number, body
    return None
