"""Slurm's words: states, times, exit codes, tables, paths of logs as it prints them, and how it words the end of a job. Pure.

Names and comments of jobs belong to their users and may hold anything, newlines included. So tables are asked for with a
separator that nobody could know beforehand (`Marks`), and a table without its header is a failed answer, never an empty one.

The end of a job is worded for our embedded schedulers, too, which speak as the real one does. Wordings: Slurm 23.11,
src/slurmd/slurmstepd/req.c, src/srun/libsrun/launch.c and src/slurmctld/job_mgr.c. The lower-case `to` of `DUE to SIGNAL` and the
capital one elsewhere are Slurm's own.
"""

from __future__ import annotations

import pwd
import re
import secrets
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache

from assistant.errors import Unavailable
from assistant.records import JobState
from assistant.redact import head_of


def stamp(at: datetime) -> str:
    """Return the local-looking time that Slurm writes, to the second."""
    return at.strftime("%Y-%m-%dT%H:%M:%S")


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the unbroken runs of sorted numbers, first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def how_ended(status: int) -> str:
    """Return srun's words for one exit status; negative for a signal, as `subprocess` has it."""
    if status >= 0:
        return f"Exited with exit code {status}"
    words = {
        signal.SIGKILL: "Killed",
        signal.SIGTERM: "Terminated",
        signal.SIGABRT: "Aborted",
        signal.SIGSEGV: "Segmentation fault",
    }
    return words.get(signal.Signals(-status), signal.strsignal(-status) or f"signal {-status}")


def task_lines(ended: Mapping[int, int], placed: Mapping[int, str]) -> list[str]:
    """Return srun's line for each node and kind of end, tasks that ended well left out.

    Args:
        ended: Exit status by rank; negative for a signal.
        placed: Node by rank.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, status in ended.items():
        if status != 0:
            groups.setdefault((placed[rank], how_ended(status)), []).append(rank)
    lines = []
    for (node, words), ranks in groups.items():
        listed = ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in _runs(sorted(ranks)))
        lines.append(f"srun: error: {node}: task{'s' if len(ranks) > 1 else ''} {listed}: {words}")
    return lines


def step_cancelled(job: str, node: str, at: datetime, because: str = "") -> str:
    """Return slurmstepd's line for a step that is being ended.

    Args:
        job: Its id.
        node: The node that says so.
        at: When.
        because: `TIME LIMIT`, `PREEMPTION`, `NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS`, `TASK FAILURE`, or nothing.
    """
    return f"slurmstepd: error: *** STEP {job}.0 ON {node} CANCELLED AT {stamp(at)}{f' DUE TO {because}' if because else ''} ***"


def job_cancelled(job: str, node: str, at: datetime) -> str:
    """Return slurmstepd's line for a job that a person ended."""
    return f"slurmstepd: error: *** JOB {job} ON {node} CANCELLED AT {stamp(at)} ***"


def oom_killed(job: str, count: int) -> str:
    """Return slurmstepd's line for tasks that the kernel killed for memory."""
    events = "event" if count == 1 else "events"
    return f"slurmstepd: error: Detected {count} oom_kill {events} in StepId={job}.0. Some of the step tasks have been OOM Killed."


def controller_line(at: datetime, text: str) -> str:
    """Return a line of slurmctld.log."""
    return f"[{at.strftime('%Y-%m-%dT%H:%M:%S')}.{at.microsecond // 1000:03d}] {text}"


NOTHING = frozenset({"", "(null)", "N/A", "None", "Unknown", "None assigned", "NONE", "n/a", "UNLIMITED", "NotSet"})
"""Slurm's ways of saying that there is no value."""

_STATES = {
    JobState.PENDING: "PENDING PD REQUEUED RQ REQUEUE_FED RF REQUEUE_HOLD RH SPECIAL_EXIT SE RESV_DEL_HOLD RD "
    "SUSPENDED S STOPPED ST",
    JobState.RUNNING: "RUNNING R COMPLETING CG CONFIGURING CF POWER_UP_NODE RESIZING RS SIGNALING SI STAGE_OUT SO UPDATE_DB",
    JobState.COMPLETED: "COMPLETED CD",
    JobState.FAILED: "FAILED F LAUNCH_FAILED RECONFIG_FAIL",
    JobState.CANCELLED: "CANCELLED CA REVOKED RV",
    JobState.TIMEOUT: "TIMEOUT TO DEADLINE DL",
    JobState.NODE_FAIL: "NODE_FAIL NF BOOT_FAIL BF",
    JobState.OUT_OF_MEMORY: "OUT_OF_MEMORY OOM",
    JobState.PREEMPTED: "PREEMPTED PR",
}
"""A suspended job waits: its silence is no hang. A completing one still writes its log, so it has not ended yet."""
STATES = {word: state for state, words in _STATES.items() for word in words.split()}


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands between fields and behind records of a table."""

    between: str = field(default_factory=lambda: f"<{secrets.token_hex(4)}>")

    @property
    def record_end(self) -> str:
        """What ends a record, before its newline."""
        return f"{self.between}."


@lru_cache(maxsize=1024)
def job_state(text: str) -> JobState:
    """Return the state of a job: whole words, `CANCELLED by 54321`, cut short as in `CANCELLED+`, or two letters.

    A word that no version known to us prints is `unknown`.
    """
    word = text.split(" ", 1)[0].strip().upper()
    if word.endswith("+") and len(word) > 4:
        return next((state for word_of_slurm, state in STATES.items() if word_of_slurm.startswith(word[:-1])), JobState.UNKNOWN)
    return STATES.get(word, JobState.UNKNOWN)


def attempt_state_text(state_text: str, status: str) -> str:
    """Return the state of one attempt in the accounting, in Slurm's word.

    An attempt after which the job was queued again failed where its exit code says so; else somebody ended it.
    """
    if not state_text.upper().startswith("REQUEUE"):
        return state_text
    return "CANCELLED" if status in ("", "0:0") else "FAILED"


GROUPED = re.compile(r"_\[|\]$")
"""An array whose tasks wait together: no attempt of any of them."""


_COUNTED = re.compile(r"(?:^|,)gres/gpu(:[^=,]*)?=([^,]*)")
_PER_NODE = re.compile(r"(?:^|[,:/])gpu(?::[\w.-]{1,64})?:([^,(:]*)")
_COUNT = re.compile(r"[0-9]{1,9}")


@lru_cache(maxsize=4096)
def gpus_of(text: str, nodes: int) -> int | None:
    """Return how many GPUs a text of TRES or GRES counts, 0 where it names none.

    Args:
        text: `billing=8,gres/gpu:a100=32,gres/gpu=32`, or `gpu:a100:8(IDX:0-7)` as older versions have it, for each node.
        nodes: How many nodes there are.

    Returns:
        None for an empty text, and where what it says of GPUs is no count of at most nine digits: `gres/gpu=-8`, `gres/gpu=1.5`.
    """
    if not text:
        return None
    counted = _COUNTED.findall(text)
    plain = [count for kind, count in counted if not kind]
    counts = plain[:1] or [count for _, count in counted]
    each = [] if counts else _PER_NODE.findall(text)
    if not all(_COUNT.fullmatch(count) for count in (*counts, *each)):
        return None
    return sum(map(int, counts)) + sum(map(int, each)) * max(1, nodes)


@lru_cache(maxsize=1024)
def canceller(state_text: str) -> str:
    """Return who cancelled a job, from `CANCELLED by 54321`: the account's name where this machine knows it, else `uid 54321`."""
    match = re.fullmatch(r"CANCELLED by (\d{1,10})", state_text.strip(), re.ASCII)
    return account_name(int(match[1])) if match is not None else ""


def account_name(uid: int) -> str:
    """Return the name of an account, `uid 54321` where this machine does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"


UNKNOWN_USER = "nobody"
"""What Slurm's commands print for every number that the machine has no account for. Source: uid_to_string of Slurm."""
OVERFLOW_UID = "65534"


def owner_of(name: str, uid: str) -> str:
    """Return the owner of a job: the name that Slurm gives, `uid 2001` where it only says that the machine knows none.

    Args:
        name: As Slurm prints it.
        uid: The number beside it; empty where that is not known.
    """
    unknown = uid.isdecimal() and uid != OVERFLOW_UID and name in (UNKNOWN_USER, uid, "")
    return f"uid {uid}" if unknown else name


def user_word(user: str) -> str:
    """Return a user as Slurm's options take one: the number alone of `uid 2001`."""
    return user.removeprefix("uid ") if user.removeprefix("uid ").isdecimal() else user


def value(text: str) -> str:
    """Return a value, empty where Slurm says that there is none."""
    return "" if text in NOTHING else text


def moment(text: str) -> datetime | None:
    """Return a time: seconds since 1970 as asked for, or ISO in this machine's zone where a version ignores the wish."""
    if text in NOTHING:
        return None
    try:
        return _since_1970(text) if text.isdecimal() else datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):  # no time, or one that no calendar has
        return None


@lru_cache(maxsize=4096)
def _since_1970(text: str) -> datetime | None:
    """Return a time, read once for all jobs that were submitted together or are expected to begin with a reservation."""
    seconds_passed = int(text)
    return datetime.fromtimestamp(seconds_passed, UTC) if seconds_passed else None


def seconds(text: str) -> int | None:
    """Return a limit such as `2-03:00:00`, `30:00`, or `90` (minutes) in seconds; None when there is none."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?", text.strip())
    if match is None:
        return None
    days, first, second, third = (int(part) if part is not None else None for part in match.groups())
    if days is not None or third is not None:
        return (days or 0) * 86400 + (first or 0) * 3600 + (second or 0) * 60 + (third or 0)
    return (first or 0) * 60 + (second or 0)


@lru_cache(maxsize=1024)
def exit_of(text: str, state: JobState) -> tuple[int | None, int | None]:
    """Return exit code and signal from `code:signal`, or from the raw wait status that squeue prints.

    An attempt that did not end by itself has an exit code only when it is not zero: `0:0` would look like a success.
    """
    if not state.ended:
        return None, None
    code, colon, number = text.partition(":")
    if not code.strip().isdecimal():
        return None, None
    status = int(code)
    status, signal = (status, int(number) if number.isdecimal() else 0) if colon else (status >> 8, status & 127)
    if signal or (status == 0 and state is not JobState.COMPLETED):
        return status or None, signal or None
    return status, None


def records(text: str, marks: Marks, columns: int) -> Iterator[list[str]]:
    """Yield the records of `squeue -O`, each of so many fields; the header is checked and left out.

    Raises:
        Unavailable: There is no header, or a record is not whole: the answer was cut short or is an error.
    """
    listed = text.split(f"{marks.record_end}\n")
    if len(listed) < 2 or listed.pop():
        raise _cut_short("squeue", text)
    for number, record in enumerate(listed):
        fields = record.split(marks.between)
        if len(fields) != columns:
            raise _cut_short("squeue", text)
        if number:
            yield fields


def accounting_records(text: str, marks: Marks, columns: int) -> Iterator[list[str]]:
    """Yield the records of `sacct -P`, whose first and last columns must be ones that never hold a newline.

    Raises:
        Unavailable: There is no header, or a record is not whole.
    """
    lines: list[str] = []
    mark_count, header = 0, True
    for line in text.removesuffix("\n").split("\n"):
        lines.append(line)
        mark_count += line.count(marks.between)
        if mark_count >= columns - 1:
            fields = "\n".join(lines).split(marks.between)
            if len(fields) != columns:
                break
            if not header:
                yield fields
            lines, mark_count, header = [], 0, False
    if lines:
        raise _cut_short("sacct", text)


def _cut_short(program: str, text: str) -> Unavailable:
    excerpt = repr(head_of(text.strip(), 200)) if text.strip() else "nothing was printed"
    return Unavailable(f"{program} answered without its whole table, so nothing is known: {excerpt}")


def pairs(record: str, keys: Sequence[str]) -> dict[str, str]:
    """Return values of a `scontrol show -o` record by key; the first place of a key counts.

    Args:
        record: One line, or several where a value holds newlines; free text of users must stand behind the keys that are wanted.
        keys: Keys whose values hold no blank.
    """
    values = {}
    for key in keys:
        match = re.search(rf"(?:^|\s){re.escape(key)}=(\S*)", record)
        if match is not None:
            values[key] = match.group(1)
    return values


WIDEST = 10
"""Digits to which Slurm pads at most."""
NUMBERED = "jJAabnst"
"""Placeholders of numbers, which a width pads; of names it is passed over. Source: man sbatch, filename pattern."""
OF_A_JOB = re.compile(r"%\d*[jJA]")
"""Placeholders that another job fills in otherwise."""


def folder_of_one_job(pattern: str) -> str:
    """Return the folder of a pattern that is named by the job's id, so that it is another one for each job; empty where none is."""
    parent = pattern.rpartition("/")[0] if "\\" not in pattern else ""
    return parent if OF_A_JOB.search(parent.replace("%%", "/")) else ""


def log_path(pattern: str, *, raw_id: str, job_id: str, name: str, user: str, node: str) -> str:
    """Return the file that a pattern of `sbatch --output` names.

    Args:
        pattern: For instance `/logs/%x-%j.out`; a padding width such as `%5j` is allowed.
        raw_id: The id that is unique for each task of an array.
        job_id: As people write it: `18_3` for a task of an array, `20+1` for a part of a heterogeneous job.
        name: The job's.
        user: Who owns it.
        node: The first of its nodes; empty while it waits.
    """
    array, _, task = job_id.partition("_")
    in_array = task.isdecimal()
    if "\\" in pattern:
        return pattern.replace("\\", "")
    if "%" not in pattern and not in_array:
        return pattern
    if in_array and pattern.endswith(f"slurm-{raw_id}.out"):
        # squeue shows the default of plain jobs for tasks of an array as well
        return pattern.removesuffix(f"slurm-{raw_id}.out") + f"slurm-{array}_{task}.out"
    form, letters = _placeholders(pattern)
    values = {"%": "%", "j": raw_id, "J": raw_id, "x": name, "u": user, "n": "0", "s": "batch", "t": "0"}
    values |= {"A": array, "a": task, "b": str(int(task) % 10)} if in_array else {"A": raw_id, "a": "4294967294"}
    values["N"] = node.partition(".")[0]
    return form % tuple([values[letter] if letter in values else _padded(letter, values) for letter in letters])


def _padded(placeholder: str, values: Mapping[str, str]) -> str:
    """Return the value of a placeholder with a width, such as `5j`, or the placeholder where nobody knows it."""
    text = values.get(placeholder[-1], f"%{placeholder}")
    width = min(int(placeholder[:-1] or 0), WIDEST)
    return text.zfill(width) if text.isdecimal() and placeholder[-1] in NUMBERED else text


@lru_cache(maxsize=4096)
def _placeholders(pattern: str) -> tuple[str, tuple[str, ...]]:
    """Return a pattern as a form for `%`, and its placeholders: a letter, behind a width where there is one."""
    pieces = re.split(r"%(\d{0,2}[%A-Za-z])", pattern)
    return "%s".join(text.replace("%", "%%") for text in pieces[::2]), tuple(pieces[1::2])
