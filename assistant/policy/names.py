"""Names in the terms of a policy: which jobs, accounts, nodes and partitions a pattern stands for, and what can stand for none.

A pattern is a name, a glob or a set. A job may also be written as Slurm itself writes it: the id of a job, of a task or a range of
tasks of an array, of a component of a heterogeneous job, or of a step. An account may be written as its name, its number or both.

What cannot be compared holds: where a job is shown with a number that has no name here, it may be anybody's whom the policy names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from assistant.accounts import both_names
from assistant.errors import UsageError
from assistant.nodeset import LIMIT, expand
from assistant.records import Job

__all__ = [
    "NamedAccount",
    "account_in",
    "check_jobs",
    "check_places",
    "check_users",
    "covers_account",
    "covers_job",
    "covers_place",
    "is_exact",
    "is_known",
    "job_names",
    "names_account",
]

_PLACE = re.compile(r"(?:[A-Za-z0-9._*?-]|\[[0-9,/!-]*\]|\[|\])+")
"""A node, a partition, a glob or a set; brackets that are not closed, or hold no numbers, are refused by `nodeset`."""
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS = re.compile(r"[0-9,/-]+")
_SEVERAL_DIGITS = re.compile(r"[0-9]{2}|[,/]")
"""In a bracket that is read as a set of numbers: as a class of single characters it would mean something else."""


def covers_place(patterns: Sequence[str], name: str) -> bool:
    """Tell whether a node or partition is one of those that patterns stand for."""
    return any(_is_of(pattern, name) for pattern in patterns)


def is_exact(pattern: str) -> bool:
    """Tell whether a pattern names what is there now; a glob is written for what may come."""
    return "*" not in pattern and "?" not in pattern


def check_places(key: str, patterns: Sequence[str]) -> None:
    """Make sure that each pattern could be the name of a node or partition, or a glob or set of such.

    Raises:
        ValueError: It would silently hold for nothing.
    """
    for pattern in patterns:
        if not _PLACE.fullmatch(pattern):
            raise ValueError(
                f"{key} {pattern!r}: wanted one name, glob or set, as node07, node* or node[001-016], without blanks; "
                f'several are written as a list: {key} = ["node07", "node09"]'
            )
        _expanded_or_wrong(key, pattern)


def _expanded_or_wrong(key: str, pattern: str) -> None:
    try:
        _is_of(pattern, "")
    except UsageError as error:
        raise ValueError(f"{key} {pattern!r}: {error}") from error


def _is_of(pattern: str, name: str) -> bool:
    if "[" not in pattern and "]" not in pattern:
        return fnmatchcase(name, pattern)
    names = _expanded(pattern)
    return name in names if is_exact(pattern) else any(fnmatchcase(name, glob) for glob in names)


@cache
def _expanded(pattern: str) -> frozenset[str]:
    return frozenset(expand(pattern))


# Globs and sets of free text: names of jobs and accounts


def _check_text(key: str, pattern: str, advice: str) -> None:
    """Raise for what no name of a job or account can be, and for brackets that say something else than they seem to."""
    wrong = next((sign for sign in pattern if sign != " " and unicodedata.category(sign)[0] in "CZ"), "")
    if not pattern or pattern != pattern.strip() or wrong or "," in _BRACKET.sub("", pattern):
        raise ValueError(f"{key} {pattern!r}: wanted {advice}, without blanks around it, commas and signs that nobody sees")
    brackets = _BRACKET.findall(pattern)
    if not all(brackets) or set("[]") & {*_BRACKET.sub("", pattern)}:
        raise ValueError(f"{key} {pattern!r}: a bracket is empty or not closed; wanted {advice}")
    if any(map(_is_number_set, brackets)):
        if not all(map(_NUMBERS.fullmatch, brackets)):
            raise ValueError(f"{key} {pattern!r}: a set of numbers and a class of letters do not go together; write it as several")
        _expanded_or_wrong(key, pattern)


def _is_number_set(bracket: str) -> bool:
    return bool(_NUMBERS.fullmatch(bracket) and _SEVERAL_DIGITS.search(bracket))


def _fits(pattern: str, name: str) -> bool:
    """Tell whether free text is what a pattern stands for: a glob, with classes of single characters, or a set of numbers."""
    return _is_of(pattern, name) if _is_set(pattern) else fnmatchcase(name, pattern)


def _is_set(pattern: str) -> bool:
    return any(map(_is_number_set, _BRACKET.findall(pattern)))


# Jobs

MOST_TASK = 4_000_000
"""Largest index of a task that Slurm knows."""
_STEP = r"(?:\.(?:[0-9]{1,9}|batch|extern|interactive|TBD)(?:\+[0-9]{1,4})?)?"
_JOB_ID = re.compile(
    rf"(?P<job>[0-9]{{1,18}})(?:_(?:(?P<all>\*)|\[(?P<set>[0-9,:-]+)(?:%[0-9]+)?\]|(?P<plain>[0-9:-]+)))?(?:\+[0-9]{{1,4}})?{_STEP}"
)
"""`98`, `98_15`, `98_[1,3,5-9:2%4]`, `98_12-15`, `98_*`, `98+1`, and steps of these: `98.0`, `98_3.batch`.

Source: squeue(1), sacct(1), scontrol(1), https://slurm.schedmd.com/job_array.html, heterogeneous_jobs.html."""
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
_LIKE_JOB_ID = re.compile(r"[0-9]+(?:_[0-9\[\],:%. -]*|_\[[0-9\[\],:%.*? -]*|\+[0-9\[\],*-]*)")
"""What was meant as an id, and may be none."""
_TASKS_UNREAD = re.compile(r"([0-9]{1,18})_\[")
_GLOB_OF_TASKS = re.compile(r"[0-9]+_(?=.*[*?\[])[0-9*?\[\]!-]+")
JOB_ADVICE = (
    "the name of a job, a glob, or an id as Slurm writes it: 98, 98_15, 98_[10-30], 98_[0-15:5], 98+1, 98.0; "
    'several are written as a list: jobs = ["98", "99"]'
)


class _JobSet(NamedTuple):
    """Which jobs an id stands for."""

    job: str
    tasks: tuple[range, ...] | None = None
    """Of an array; None: the whole."""


def job_names(job: Job) -> tuple[str, ...]:
    """Return the ids and the name of a job by which a pattern may stand for it."""
    # the task of an array that starts last has the id of the whole for its own
    own_id = (job.raw_id,) if job.raw_id and (array := _job_set(job.id)) is not None and job.raw_id != array.job else ()
    return tuple(dict.fromkeys((job.id, *own_id, job.name)))


def check_jobs(patterns: Sequence[str]) -> None:
    """Make sure that each pattern could be the name or id of a job, or a glob or set of such.

    Raises:
        ValueError: It would silently hold for nothing.
    """
    for pattern in patterns:
        plain = unicodedata.normalize("NFKC", pattern)
        if plain != pattern and _LIKE_JOB_ID.match(f"{plain}_"):
            raise ValueError(f"jobs {pattern!r}: wanted digits as on the keyboard: {plain!r}")
        if _job_set(pattern) is not None:
            continue
        if _LIKE_JOB_ID.fullmatch(pattern):
            shortened = "squeue has shortened it, `scontrol show job` shows all of it; " if "..." in pattern else ""
            raise ValueError(
                f"jobs {pattern!r}: no job has such an id; {shortened}a range begins with the smaller number, a task has at most "
                f"the number {MOST_TASK:,}; wanted {JOB_ADVICE}"
            )
        _check_text("jobs", pattern, JOB_ADVICE)


def covers_job(patterns: Sequence[str], name: str) -> bool:
    """Tell whether a job is one of those that patterns stand for.

    Args:
        patterns: Names, globs and ids.
        name: Id or name of the job. A whole array stands for each of its tasks, and a component of a heterogeneous job, which
            begins and ends as one, for the whole.
    """
    actual = _job_set(name) or _shortened_array(name)
    return any(pattern == name or _covers_id(pattern, actual) or _fits_job_name(pattern, name) for pattern in patterns)


def _shortened_array(name: str) -> _JobSet | None:
    """Return the whole array of an id whose tasks cannot be read, as squeue shortens them: any task may be among them."""
    match = _TASKS_UNREAD.match(name)
    return _JobSet(match[1].lstrip("0") or "0") if match is not None else None


def _fits_job_name(pattern: str, name: str) -> bool:
    # the brackets of an id hold tasks, and are no class of single characters
    return not ("[" in pattern and _job_set(pattern)) and _fits(pattern, name)


def _covers_id(pattern: str, actual: _JobSet | None) -> bool:
    if actual is None:
        return False
    expected = _job_set(pattern)
    if expected is not None:
        return expected.job == actual.job and _overlap(expected.tasks, actual.tasks)
    if _fits(pattern, actual.job):
        return True
    base = pattern.partition("_")[0]
    if actual.tasks is not None and sum(map(len, actual.tasks)) > LIMIT:
        return "_" in pattern and _fits(base, actual.job)
    if actual.tasks is None:
        # 98_1* names tasks of 98, which has them then
        return base == actual.job and _GLOB_OF_TASKS.fullmatch(pattern) is not None
    return any(_fits(pattern, f"{actual.job}_{task}") for tasks in actual.tasks for task in tasks)


@cache
def _job_set(text: str) -> _JobSet | None:
    """Return which jobs an id stands for, None for what is no id."""
    match = _JOB_ID.fullmatch(text)
    if match is None:
        return None
    job, listed = match["job"].lstrip("0") or "0", match["set"] or match["plain"]
    if listed is None:
        return _JobSet(job)
    tasks: list[range] = []
    for part in listed.split(","):
        numbers = _TASKS.fullmatch(part)
        if numbers is None:
            return None
        first, last, step = int(numbers[1]), int(numbers[2] or numbers[1]), int(numbers[3] or 1)
        if not first <= last <= MOST_TASK or step == 0:
            return None
        tasks.append(range(first, last + 1, step))
    return _JobSet(job, tuple(tasks))


def _overlap(tasks: tuple[range, ...] | None, more_tasks: tuple[range, ...] | None) -> bool:
    if tasks is None or more_tasks is None:
        return True
    return any(_meet(first, second) for first in tasks for second in more_tasks)


def _meet(first: range, second: range) -> bool:
    fewer, more = sorted((first, second), key=len)
    if fewer[-1] < more[0] or more[-1] < fewer[0]:
        return False
    return fewer.step == more.step == 1 or any(number in more for number in fewer)


# Accounts

_ACCOUNT = re.compile(r"(?:uid[ =]?(?P<uid>[0-9]{1,10})|(?P<name>[^()]*?)(?:\((?P<of_name>[0-9]{1,10})?\))?)")
_USER = re.compile(r"(?:[A-Za-z0-9_.*?]|\[[^\[\]]*\])(?:[A-Za-z0-9_.*?+$-]|\[[^\[\]]*\])*")
_NUMBER = re.compile(r"[0-9]{1,10}")
USER_ADVICE = (
    "an account, a glob or a set: trainer, train*, train[01-16], trainer@domain, the number 2001, or trainer(2001) as scontrol "
    'shows it; several are written as a list: users = ["trainer", "2001"]'
)


class NamedAccount(NamedTuple):
    """An account, as far as it is known."""

    name: str
    """Empty where only its number is known."""
    uid: int | None


def account_in(text: str) -> NamedAccount:
    """Return the account that a text names: `trainer`, `2001`, `uid 2001`, or both as scontrol shows them: `trainer(2001)`."""
    if _NUMBER.fullmatch(text):
        return NamedAccount("", int(text))
    match = _ACCOUNT.fullmatch(text)
    if match is None:
        return NamedAccount(text, None)
    number = match["uid"] or match["of_name"]
    return NamedAccount(match["name"] or "", int(number) if number else None)


def check_users(patterns: Sequence[str]) -> None:
    """Make sure that each pattern could be an account, its number, or a glob or set of accounts.

    Raises:
        ValueError: It would silently hold for nobody.
    """
    for pattern in patterns:
        account = account_in(pattern)
        if account.uid is not None and not account.name:
            continue
        domain, name = _parted(account.name)
        if pattern[:1] in tuple("@%:+&") and pattern[1:]:
            raise ValueError(f"users {pattern!r}: groups hold for nobody here; wanted {USER_ADVICE}")
        separated = "@" in account.name or "\\" in account.name
        if not _USER.fullmatch(name) or (separated and not _USER.fullmatch(domain)) or pattern.endswith("()"):
            raise ValueError(f"users {pattern!r}: wanted {USER_ADVICE}, without blanks")
        _check_text("users", account.name, USER_ADVICE)


def covers_account(patterns: Iterable[str], text: str) -> bool:
    """Tell whether an account is one of those that patterns stand for, or may be: what cannot be compared holds.

    Args:
        patterns: Names, numbers, globs.
        text: The account, best as both name and number: `trainer(2001)`.
    """
    actual = account_in(text)
    return any(_is_account(pattern, actual) for pattern in patterns)


def names_account(pattern: str, text: str) -> bool:
    """Tell whether a pattern surely stands for an account: what cannot be compared does not."""
    actual = account_in(text)
    return _compared(pattern, actual) is True


def is_known(pattern: str) -> bool:
    """Tell whether this machine knows an account that a pattern names exactly; a set counts by its first member."""
    account = account_in(pattern)
    if account.uid is not None:
        return bool(account_in(both_names(str(account.uid))).name)
    names = sorted(_expanded(pattern)) if _is_set(pattern) else [pattern]
    return any(account_in(both_names(name)).uid is not None for name in (*names[:1], *(_parted(name)[1] for name in names[:1])))


def _is_account(pattern: str, actual: NamedAccount) -> bool:
    return _compared(pattern, actual) is not False


def _compared(pattern: str, actual: NamedAccount) -> bool | None:
    """Return whether an account is what a pattern stands for; None where one side has a number alone and the other a name."""
    expected = account_in(pattern)
    if actual.name and _same_name(expected.name or pattern, actual.name):
        return True
    if actual.uid is not None and expected.name and fnmatchcase(str(actual.uid), expected.name):
        return True
    if expected.uid is not None and actual.uid is not None:
        return expected.uid == actual.uid
    return False if expected.name and actual.name else None


def _same_name(pattern: str, name: str) -> bool:
    """Compare names as directory services do: without case, without a domain that only one side writes; HPC is hpc.example."""
    pattern, name = pattern.casefold(), name.casefold()
    if _fits(pattern, name):
        return True
    (of_pattern, short_pattern), (of_name, short_name) = _parted(pattern), _parted(name)
    if not _fits(short_pattern, short_name):
        return False
    short, long = sorted((of_pattern, of_name), key=len)
    return not short or _fits(of_pattern, of_name) or long.startswith(f"{short}.")


def _parted(name: str) -> tuple[str, str]:
    r"""Return domain and name of `name@domain` or `DOMAIN\name`; an empty domain where it has none."""
    domain, backslash, short_name = name.partition("\\")
    if backslash:
        return domain, short_name
    short_name, _, domain = name.partition("@")
    return domain, short_name
