"""Checkpoints whose name has no number, as `last.ckpt` and `work/model.json`: which files they are, and which place they have.

A program writes such a file anew at each save. Most tell their step inside. Of one that does not, the line by which the job's log
tells of its last save names the step. Where no line does, its place is known all the same where the attempt itself wrote it behind
others that tell theirs: then the number of these is the least that it can be, it counts no steps, and nothing that asks for a step
before a divergence takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.records import Checkpoint, Job
from assistant.recover.checkpoints.entry import Entry, Format
from assistant.recover.checkpoints.inventory import Inventory, judged_anew
from assistant.recover.checkpoints.layout import UNKNOWN_STEP, UNNUMBERED, counts_steps
from assistant.recover.checkpoints.names import COUNTS_HERE, Unit, is_rolling, number_in, without_suffix
from assistant.recover.checkpoints.shards import NO_STEP
from assistant.recover.checkpoints.slots import MOST_SLOTS, SaveLine, former_of, groups_of, turns_of
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.untrusted import is_regular, list_folder, status_of

MOST_LINES, MOST_FILES, MOST_CHILDREN = 20_000, 4, 2_000
MOST_CHARACTERS = 1_000
TELLS = re.compile(
    r"\b(?:sav(?:ed|es|ing)|wrote|writ(?:es|ten|ing)|checkpoint(?:ed)?|snapshot|dump(?:ed|s|ing)|stor(?:ed|es|ing))\b",
    re.IGNORECASE,
)
DOES_NOT = re.compile(r"error|fail|cannot|could not|unable|traceback|\bwill be\b|\bnot sav|\bevery\b|--\w", re.IGNORECASE)
LOADS = re.compile(r"load|pretrain|teacher|resum|restor|warm.?start|\bfrom\b|\bread", re.IGNORECASE)
"""Words of lines that name what a job reads."""
PATH = re.compile(r"(?<![\w./~-])(?:[\w.~@+=-]{0,100}/){0,12}[\w@+=-][\w.@+=-]{0,150}", re.UNICODE)
NO_STATE = re.compile(
    r"\.(?:log|out|err|csv|tsv|jsonl|ya?ml|toml|png|jpe?g|gif|svg|pdf|html|md|lock|sh|py|pyc|mp4|wav|parquet|arrow|xml|ini|cfg"
    r"|conf|pid"
    r"|part|tmp)$|(?:^|[._-])(?:logs?|metrics?|loss(?:es)?|config|cfg|args|hparams|params|settings|report|summary|results?"
    r"|predictions?|scores?|history|plot|figure|vocab|tokenizer|manifest|stats?|timings?)(?:[._-]|$)",
    re.IGNORECASE,
)
"""Names of logs, settings, results, pictures and data."""
STATE_WORDS = re.compile(
    r"check-?point|ckpt|snapshot|restart|resume|backup|dump|(?:^|[\W_])(?:state|model|weights|net|solver|sav)(?:[\W_]|$)",
    re.IGNORECASE,
)
STATES = re.compile(
    r"check-?point|ckpt|snapshot|restart|backup|dump|(?<![A-Za-z])(?:states?|models?|weights)(?![A-Za-z])", re.IGNORECASE
)
NUMBER = re.compile(r"\d+")
FEWEST_OF_SERIES = 2
COUNT = re.compile(
    r"\b(?P<word>global[_ ]?step|time[_ ]?step|step|iteration|iter|it|round|sweep|cycle|generation|gen|update|batch|tick|pass|turn"
    r"|point|frame|epoch|ep|stage)s?\b\s{0,2}(?:no\.?|nr\.?|[=:#])?\s{0,6}(?P<number>\d{1,12})\b(?![.:]\d)"
    r"|\b(?P<before>\d{1,12}) (?P<unit>time ?steps|steps|iterations|rounds|sweeps|cycles|generations|updates|batches|ticks|passes"
    r"|epochs)\b",
    re.IGNORECASE,
)
"""A word for what a program counts, with its number."""
PART = re.compile(
    r"\b(?:rank|member|replica|shard|worker|process|optimi[sz]er|scheduler|weights|ema|actor|critic)\b|\[\d+\]", re.IGNORECASE
)
ENDED = re.compile(r"\b(?:saved|wrote|written|dumped|stored|complete[d]?|done)\b", re.IGNORECASE)
EPOCHS = frozenset(("epoch", "epochs", "ep"))


def named_saves(job: Job, texts: Sequence[str]) -> list[Path]:
    """Return the files without a number in their names of which a job's log says that it saved them, the last named first.

    Each is there, and was written while the job ran. Its name or the line calls it a state, or the log tells of two saves of it at
    least: what is written once may be a result.

    Args:
        job: With work folder and the times of its attempt.
        texts: Lines of its log, in order.
    """
    if job.work_dir is None or job.started is None:
        return []
    saves: dict[str, int] = {}
    state_names: set[str] = set()
    for text in reversed(texts[-MOST_LINES:]):
        for name in _names_saved(text):
            saves[name] = saves.get(name, 0) + 1
            if STATE_WORDS.search(text) or _is_of_state(Path(name).name):
                state_names.add(name)
    paths = [job.work_dir / name.removeprefix("./") for name, count in saves.items() if name in state_names or count > 1]
    return [path for path in dict.fromkeys(paths) if _is_written(path, job)][:MOST_FILES]


def former_saves(path: Path, job: Job) -> list[Path]:
    """Return the files beside one that its log names which the attempt wrote and whose names say that they are its former ones."""
    try:
        children = list_folder(path.parent, MOST_CHILDREN)
    except (OSError, InputError, UnreadableFile, OwnerDenied):
        return []
    return [child for child in children if former_of(child.name) == path.name and _is_written(child, job)][:MOST_FILES]


def numbered_saves(job: Job, texts: Sequence[str]) -> dict[Path, str]:
    """Return the form of names of which a job's log names one after another, with a # for the number that rises, by their folder.

    For names whose number no rule knows to count: `models/plum.r0090.json`. The lines or the folder call them a state, and all that
    are there were written while the job ran: two at least.
    """
    if job.work_dir is None or job.started is None:
        return {}
    series: dict[tuple[str, ...], dict[str, None]] = {}
    for text in texts[-MOST_LINES:]:
        if len(text) > MOST_CHARACTERS or not STATES.search(text) or DOES_NOT.search(text) or LOADS.search(text):
            continue
        for match in PATH.finditer(text):
            name = match[0].rstrip(".:")
            if "/" in name and re.search(r"\d[^/]*\.[A-Za-z]", name) and not NO_STATE.search(name.rpartition("/")[2]):
                series.setdefault(tuple(NUMBER.split(name)), {}).setdefault(name)
    forms: dict[Path, str] = {}
    for parts, names in series.items():
        form = _rising_form(parts, [NUMBER.findall(name) for name in names])
        paths = [job.work_dir / name.removeprefix("./") for name in names]
        if form and sum(_is_written(path, job) for path in paths[-FEWEST_OF_SERIES:]) == FEWEST_OF_SERIES:
            forms[paths[-1].parent] = form
    return forms


def _rising_form(parts: Sequence[str], numbers: Sequence[Sequence[str]]) -> str:
    """Return the last part of a path with a # for the one number that differs and rises; empty where none, or another one does."""
    columns = list(zip(*numbers, strict=True))
    differing = [place for place, column in enumerate(columns) if len(set(column)) > 1]
    if len(numbers) < FEWEST_OF_SERIES or len(differing) != 1:
        return ""
    values = [int(text) for text in columns[differing[0]]]
    if not all(first < second for first, second in pairwise(values)):
        return ""
    fixed = [COUNTS_HERE if place == differing[0] else column[0] for place, column in enumerate(columns)]
    path = "".join(part + number for part, number in zip(parts, [*fixed, ""], strict=True))
    return path.rpartition("/")[2] if COUNTS_HERE in path.rpartition("/")[2] else ""


def _names_saved(text: str) -> Iterator[str]:
    if len(text) > MOST_CHARACTERS or not TELLS.search(text) or DOES_NOT.search(text) or LOADS.search(text):
        return
    for match in PATH.finditer(text):
        name = match[0].rstrip(".:")
        last = name.rpartition("/")[2]
        is_file = "/" in name or (re.search(r"\w\.[A-Za-z]\w{0,11}$", name) is not None and not name.endswith(".."))
        if is_file and last and number_in(last) is None and not NO_STATE.search(last):
            yield name


def _is_of_state(name: str) -> bool:
    return UNNUMBERED.fullmatch(without_suffix(name)) is not None or is_rolling(name) or STATE_WORDS.search(name) is not None


def _is_written(path: Path, job: Job) -> bool:
    try:
        if path.is_symlink() or not is_regular(path):
            return False
        status = status_of(path)
    except (OSError, InputError, UnreadableFile, OwnerDenied):
        return False
    return bool(status.st_size) and _is_of_attempt(status.st_mtime, job)


def _is_of_attempt(changed: float, job: Job) -> bool:
    """Tell whether a time lies within the last attempt of a job."""
    if job.started is None or changed < job.started.timestamp():
        return False
    return job.ended is None or not job.state.ended or changed <= (job.ended + CLOCKS_APART).timestamp()


def with_turns(listing: Inventory, job: Job, texts: Sequence[str], *, now: datetime) -> Inventory:
    """Return an inventory in which files that are written in turn have the counts of their last saves, and are compared.

    Only those that the attempt wrote itself, in the order of its log; others stay as they are.

    Args:
        listing: What the folder of a job holds.
        job: With the times of its attempt.
        texts: Lines of the log of that attempt, in order.
        now: The time.
    """
    single = {
        entry.path.name: (entry, save)
        for entry, save in zip(listing.entries, listing.checkpoints, strict=True)
        if _may_take_turns(entry) and _is_of_attempt(save.saved_at.timestamp(), job)
    }
    placed: dict[Path, Entry] = {}
    grounds: dict[Path, str] = {}
    for names in groups_of(list(single)):
        turns = turns_of(names, *_save_lines(names, texts)) if not _tells_parts(names, texts) else None
        if turns is None or len({single[name][0].path.parent for name in names}) > 1:
            continue
        in_order = sorted(names, key=lambda name: (name not in turns.former, turns.counts[name]))
        by_time = sorted(names, key=lambda name: single[name][1].saved_at)
        in_writing = by_time[-1] if turns.is_done and not turns.former and by_time == [*in_order[1:], in_order[0]] else ""
        if not (by_time == in_order or in_writing) or len({single[name][1].saved_at for name in names}) < len(names):
            continue  # the log tells another order than the times
        for name in names:
            entry, step = single[name][0], turns.counts[name]
            layout = Format.EPOCHS if turns.is_epoch else Format.PLAIN
            if name in turns.former:
                layout, grounds[entry.path] = Format.PLACED, f"its name and time say that it was written before {former_of(name)}"
            elif name == in_writing:  # the line of a save may come behind it
                step, layout = max(turns.counts.values()) + turns.interval, Format.PLACED
                grounds[entry.path] = "it was the next in turn, and was written behind the others"
            placed[entry.path] = replace(entry, step=step, format=layout, slot=min(names))
    return judged_anew(listing, placed, grounds, now=now, live=not job.state.ended) if placed else listing


def _may_take_turns(entry: Entry) -> bool:
    """Tell whether a file may be a slot: no number in its name counts, and it tells no step inside."""
    number = number_in(entry.path.name)
    is_told = entry.step not in (UNKNOWN_STEP, number.number if number is not None else UNKNOWN_STEP)
    is_slot = number is None or (number.unit is Unit.UNNAMED and number.number < MOST_SLOTS)
    return not is_told and is_slot and not entry.temporary and list(entry.files) == [entry.path.name]


def _save_lines(names: Sequence[str], texts: Sequence[str]) -> tuple[list[SaveLine], int]:
    """Return the lines of a log that tell of saves of some files, and the highest count behind the last of them, 0 for none."""
    patterns = {name: _name_pattern(name) for name in names}
    lines: list[SaveLine] = []
    last_shown: re.Match[str] | None = None
    reached = 0
    for text in (line[:MOST_CHARACTERS] for line in texts[-MOST_LINES:]):
        line_names = frozenset(name for name, pattern in patterns.items() if pattern.search(text))
        bare = text
        for name in line_names:
            bare = patterns[name].sub(" ", bare)
        line_count = COUNT.search(bare)
        if line_names and TELLS.search(bare) and not DOES_NOT.search(bare) and not LOADS.search(bare):
            counted, reached = line_count or last_shown, 0
            unit = _unit_of(counted) if counted is not None else ""
            number = _number_of(counted) if counted is not None else None
            lines.append(SaveLine(line_names, number, unit in EPOCHS, ENDED.search(bare) is not None))
        elif line_count is not None and lines and (_unit_of(line_count) in EPOCHS) == lines[-1].is_epoch:
            reached = max(reached, _number_of(line_count))
        last_shown = line_count or last_shown
    return lines, reached


def _tells_parts(names: Sequence[str], texts: Sequence[str]) -> bool:
    """Tell whether a line that names a save says that it is a part's: a rank's, the optimizer's."""
    patterns = [_name_pattern(name) for name in names]
    heads = (text[:MOST_CHARACTERS] for text in texts[-MOST_LINES:])
    return any(PART.search(head) and any(pattern.search(head) for pattern in patterns) for head in heads)


def _name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w~-]|\.\w)")


def _number_of(match: re.Match[str]) -> int:
    return int(match["number"] or match["before"])


def _unit_of(match: re.Match[str]) -> str:
    return (match["word"] or match["unit"]).lower()


def with_places(listing: Inventory, job: Job, texts: Sequence[str], *, now: datetime) -> Inventory:
    """Return an inventory in which files that tell no step have the place that log and times give them; others stay as they are.

    Args:
        listing: What the folder of a job holds.
        job: With the times of its attempt.
        texts: Lines of the log of that attempt, in order.
        now: The time.
    """
    untold_saves = [
        (entry, save)
        for entry, save in zip(listing.entries, listing.checkpoints, strict=True)
        if save.undecided and save.problems and all(problem.endswith(NO_STEP) for problem in save.problems)
    ]
    entries: dict[Path, Entry] = {}
    grounds: dict[Path, str] = {}
    for entry, save in untold_saves:
        if not _is_of_attempt(save.saved_at.timestamp(), job) or entry.marked or entry.temporary:
            continue
        place = _logged(entry, texts, listing)
        earlier = [sibling for sibling in listing.checkpoints if sibling.saved_at < save.saved_at and sibling.path not in entries]
        if place is None or any(sibling.step > place[0].step for sibling in earlier):  # its log counts something else there
            place = _by_time(entry, save, listing, job)
        if place is not None:
            entries[entry.path], grounds[entry.path] = place
    return judged_anew(listing, entries, grounds, now=now, live=not job.state.ended) if entries else listing


def _logged(entry: Entry, texts: Sequence[str], listing: Inventory) -> tuple[Entry, str] | None:
    """Return an entry with the count that the last line about its save names; None where no line names one.

    Where the log counts on by as much as lies between two saves, the file may be of a later one, of which no line tells.
    """
    name = _name_pattern(entry.path.name)
    counts: list[tuple[int, bool]] = []
    last_shown = count_before = None
    for text in texts[-MOST_LINES:]:
        last_shown = COUNT.search(text[:MOST_CHARACTERS]) or last_shown
        if len(text) > MOST_CHARACTERS or not name.search(text) or not TELLS.search(text) or DOES_NOT.search(text):
            continue
        match = COUNT.search(name.sub(" ", text))
        if match is None:
            counts.append((UNKNOWN_STEP, False))
            count_before = last_shown
            continue
        counts.append((_number_of(match), _unit_of(match) in EPOCHS))
    if counts and counts[-1][0] == UNKNOWN_STEP and count_before is not None and _unit_of(count_before) not in EPOCHS:
        number = _number_of(count_before)
        return (
            (replace(entry, step=number, format=Format.PLACED), f"its log tells of its save behind `{count_before[0]}`")
            if number
            else None
        )
    if not counts or counts[-1][0] == UNKNOWN_STEP:
        return None
    count, is_epoch = counts[-1]
    steps_elsewhere = any(save.step and counts_steps(save.format, save.path.name) for save in listing.checkpoints)
    if is_epoch and steps_elsewhere:
        return None  # epochs and steps cannot be put in one order
    if is_epoch:
        return replace(entry, step=count, format=Format.EPOCHS), ""
    points = metric_points(Line(number, text) for number, text in enumerate(texts, 1))
    reached = max((point.step for point in points if not point.counted), default=0)
    numbers = sorted({number for number, _ in counts if number})
    interval = min((later - earlier for earlier, later in pairwise(numbers)), default=count)
    if reached >= count + interval:
        words = f"its log tells of its save at {count}, and goes on to {reached}"
        return replace(entry, step=count, format=Format.PLACED), words
    return replace(entry, step=count), ""


def _by_time(entry: Entry, save: Checkpoint, listing: Inventory, job: Job) -> tuple[Entry, str] | None:
    """Return an entry placed behind those that the attempt wrote before it; None where it is not the newest of all by that."""
    numbered = [sibling for sibling in listing.checkpoints if sibling.step and sibling.path != save.path]
    before = [
        sibling for sibling in numbered if _is_of_attempt(sibling.saved_at.timestamp(), job) and sibling.saved_at < save.saved_at
    ]
    newest = max(before, key=lambda sibling: sibling.step, default=None)
    if newest is None or any(
        sibling.step > newest.step or not counts_steps(sibling.format, sibling.path.name) for sibling in numbered
    ):
        return None
    behind_s = (save.saved_at - newest.saved_at).total_seconds()
    words = f"the attempt wrote it {behind_s:.0f} s behind {newest.path.name}, so it is of step {newest.step} or later"
    return replace(entry, step=newest.step, format=Format.PLACED), words
