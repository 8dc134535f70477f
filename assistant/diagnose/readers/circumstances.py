"""What a log says about its own run: settings, versions, saves and progress bars, each with the line that says it.

Programs print their settings in a dozen ways (`--name value`, `name=value`, `"name": value`, `name ..... value`, lists of
arguments); what they have in common is a name, a sign and a value, so only the name is asked for.

The bar of the run is the outermost one that spans it. A run draws many: of downloads and preparations before it, of each epoch,
of an evaluation in between. The last one drawn is mostly an inner one. Where only inner ones show, how far the run came is told
by what counts around them (`epoch 3 of 10`), or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.logs.lines import Line

FIRST_LINES, LAST_LINES, MOST_OF_LINE = 4000, 400, 4000
_HEAD = r"(?<![\w-])(?P<name>(?:--)?(?:"
_TAIL = r"))(?:['\"]?\s{0,2}(?:[:=]|\.{3,}|,)\s{0,2}['\"]?|\s)(?P<value>[1-9]\d{0,5})(?![\w.]|/)"
_BATCH = r"(?![\w-]{0,30}(?:eval|test|val|global|min|max|num))[a-z_-]{0,24}batch[-_]?size(?:[-_]per[-_](?:gpu|device))?|mbs"
_LENGTH = (
    r"[a-z_-]{0,16}(?:seq[-_]?len(?:gth)?|sequence[-_]length)|max[-_](?:model[-_]len|prompt[-_]length|completion[-_]length)"
    r"|cutoff[-_]len|block[-_]size"
)
_WORKERS = r"(?:dataloader[-_])?n(?:um)?[-_]workers|loader[-_]workers"
_SIGN = r"(?:['\"]?\s{0,2}(?:[:=]|\.{3,})\s{0,2}['\"]?)"
_SAVING = r"save[-_](?:steps|interval|freq)|checkpoint[-_]interval|every[-_]n[-_]train[-_]steps"
BATCH = re.compile(rf"{_HEAD}{_BATCH}{_TAIL}", re.IGNORECASE)
LENGTH = re.compile(rf"{_HEAD}{_LENGTH}{_TAIL}", re.IGNORECASE)
SAVING = re.compile(rf"{_HEAD}{_SAVING}{_TAIL}", re.IGNORECASE)
WORKERS = re.compile(rf"{_HEAD}{_WORKERS}{_TAIL}", re.IGNORECASE)
WORLD = re.compile(rf"{_HEAD}world[-_ ]?size{_TAIL}", re.IGNORECASE)
PORT = re.compile(rf"{_HEAD}(?:master[-_])?port{_TAIL}", re.IGNORECASE)
RATE = re.compile(
    r"(?<![\w-])(?P<name>(?:--)?(?:base_lr|learning[-_]rate|lr))(?:['\"]?\s{0,2}(?:[:=]|\.{3,})\s{0,2}['\"]?|\s)"
    r"(?P<value>(?:\d{1,3}(?:\.\d{0,12})?|\.\d{1,12})(?:[eE]-?\d{1,3})?)(?![\w.])"
)
TIME = re.compile(r"#(?:BSUB|SBATCH|PBS|\$) .{0,80}?(?P<name>-W|--time|-t|walltime|h_rt)(?:=| )(?P<value>[\d:-]{1,20})(?![\w.])")
FOLDER = re.compile(
    r"(?<![\w-])(?P<name>--(?:train|output|save|ckpt|checkpoint|log|exp|run|model)[-_]?(?:dir|path|folder))(?:=|\s)"
    r"(?P<value>[\w./~-]{1,200})"
)
"""Settings with their values: loader workers, processes, learning rate, and where a program writes.

Before them: batch and sequence of one device, and the steps between two saves."""
_WHOLE = r"(?:check-?points?|ckpt|models?|weights|state_dict|(?:training|optimizer|trainer) state)"
_SAVED = re.compile(
    rf"\b(?:sav(?:ed|ing)|wrote|writing|stored)\b.{{0,60}}\b{_WHOLE}\b"
    rf"|\b{_WHOLE}\b.{{0,40}}\b(?:saved|written|stored)\b|[Ss]aving .{{0,40}}checkpoint-\d"
    rf"|\bsav(?:ed|ing)\b[ :].{{0,160}}\.(?:pth?|ckpt|safetensors)\b"
    r"|[Aa]dding directory to artifact \(\S{0,200}check-?points?/\S{1,200}\)\.{3} Done"
    r"|\b(?:wrote|writing|written|saved|saving)\b.{0,40}\b(?:restart|rst7?|wrfrst|cpt)\b"
    r"|[Ss]ummoning checkpoint"
    rf"|\bsave {_WHOLE}:? (?:to |in |as |at )?[\w.~-]{{0,80}}/\S",
    re.IGNORECASE,
)
MOST_SETTINGS, MOST_NAMES, MOST_VALUES = 3, 6, 6
_TYPES = frozenset({"int", "str", "float", "bool", "dict", "list", "tuple", "type", "object", "tensor", "line"})
_SETTING_NAME = re.compile(r"\b(?:[a-z][a-z0-9]*_[a-z0-9_]{2,60})\b")
_OPTION_NAME = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+){1,8})\b")
_READ_SETTING = re.compile(
    r"\b(?:args?|cfg|config|opts?|options|hparams|hps|FLAGS|params|settings|conf)\.(?:\w+\.){0,3}(\w{2,60})(?![\w(.])"
)
_MESSAGE_VALUE = re.compile(
    r"(?<![A-Za-wyz0-9_.:/-])(?<!line )(?<!rrno )(?<!pid )(?<!0x)\d{3,9}(?![\w:/-]|\.\d)|(?<![\w.])0\.\d{1,4}(?![\w.])"
    r"|['\"`][A-Za-z][\w.-]{3,60}['\"`]"
)
"""Settings that a message or a line of source may name, and values by which a setting is known: numbers of three digits and more,
shares, and words in quotes."""
_NOT_SAVED = re.compile(
    r"\bnot\b|fail|error|will be|every \d|interval|skip|every n|\bn train|saved? (?:tensor|variable)|load", re.IGNORECASE
)
_NO_MODEL = re.compile(r"sample|generat|result|metric|plot|figure|image|predict|\.(?:csv|png|txt|npy|log)\b", re.IGNORECASE)


class Setting(NamedTuple):
    """A setting that the log prints."""

    name: str
    value: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} {self.value} (job.log:{self.line})"


def setting(facts: Facts, pattern: re.Pattern[str], before: int) -> Setting | None:
    """Return the first setting of the last attempt whose name fits, as its program was started; None where the log prints none.

    Args:
        facts: Of the case.
        pattern: BATCH, LENGTH or SAVING.
        before: Line up to which is looked first.
    """
    for line in _start_lines(facts, before):
        text = line.text[:MOST_OF_LINE]
        if match := pattern.search(text):
            return Setting(match["name"].lstrip("-"), match["value"], line.number)
    return None


def named_setting(facts: Facts, name: str, before: int) -> Setting | None:
    """Return the value that the log prints for a setting of a name; None where it prints none."""
    return setting(facts, _named_pattern(name), before)


def option_with(facts: Facts, value: str, before: int) -> str:
    """Return the option or setting by which a value was given, with its line; empty where the log shows none."""
    pattern = re.compile(
        rf"(?P<option>--[A-Za-z][\w.-]{{0,60}})(?:=|\s)['\"]?{re.escape(value)}(?![\w/])"
        rf"|(?P<name>[A-Za-z]\w{{0,40}}[_.]\w{{1,40}}){_SIGN}{re.escape(value)}(?![\w/])"
    )
    for line in _start_lines(facts, before - 1):
        if value in line.text and (match := pattern.search(line.text[:MOST_OF_LINE])) and "rror" not in line.text:
            return f"{match['option'] or match['name']} (job.log:{line.number})"
    return ""


def settings_named(facts: Facts, message: str, source: str, end_line: int) -> list[Setting]:
    """Return the settings printed in the log that a message is about: by their names, by what code reads them, by their values.

    Args:
        facts: Of the case.
        message: What was complained of.
        source: The line of the job's own code that raised it, or nothing.
        end_line: Line up to which is looked first; what that line itself prints is none.

    Returns:
        At most `MOST_SETTINGS`, each name once. A value counts only where one setting alone has it.
    """
    options = [name.replace("-", "_") for name in _OPTION_NAME.findall(message)]
    names = dict.fromkeys([*options, *_SETTING_NAME.findall(message), *_READ_SETTING.findall(source)])
    printed = (named_setting(facts, name, end_line) for name in list(names)[:MOST_NAMES])
    settings = [value for value in printed if value is not None and value.line < end_line and not _in_traceback(value.line, facts)]
    values = list(dict.fromkeys(match[0].strip("'\"`") for match in _MESSAGE_VALUE.finditer(message)))[:MOST_VALUES]
    values_named = {value.value for value in settings}
    holders = _holders([value for value in values if value not in values_named], facts, end_line)
    by_name = {value.name.lower().replace("-", "_"): value for value in (*holders, *settings)}
    return [value for value in sorted(by_name.values(), key=lambda value: value.line) if value.value not in _TYPES][:MOST_SETTINGS]


def _holders(values: Sequence[str], facts: Facts, end_line: int) -> list[Setting]:
    """Return for each value the one setting that the log prints with it; none for a value that several settings have."""
    if not values:
        return []
    pattern = _holding_pattern(tuple(values))
    holders: dict[str, dict[str, Setting]] = {}
    for line in islice(_start_lines(facts, end_line - 1), FIRST_LINES):
        if line.number >= end_line or not any(value in line.text for value in values) or _in_traceback(line.number, facts):
            continue
        for match in pattern.finditer(line.text[:MOST_OF_LINE]):
            if not match["option"] and not match["value"][0].isdigit():
                continue  # a word may stand behind any name
            name = (match["option"] or match["name"]).lstrip("-")
            setting = Setting(name, match["value"], line.number)
            holders.setdefault(match["value"], {}).setdefault(name.lower().replace("-", "_"), setting)
    return [next(iter(by_line.values())) for by_line in holders.values() if len(by_line) == 1]


def _in_traceback(number: int, facts: Facts) -> bool:
    return any(episode.first <= number <= episode.last for episode in facts.episodes)


@lru_cache(maxsize=64)
def _holding_pattern(values: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![\w.-])(?:(?P<option>--[A-Za-z][\w.-]{{1,60}})(?:=|\s|['\"],\s{{0,2}})|(?P<name>[A-Za-z][A-Za-z0-9]{{0,40}}[_-]\w[\w-]{{1,40}}){_SIGN})"
        rf"['\"]?(?P<value>{'|'.join(map(re.escape, values))})(?![\w/-]|\.\d)"
    )


@lru_cache(maxsize=64)
def _named_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?P<name>{re.escape(name)}){_SIGN}(?P<value>-?[\w./-]{{1,60}})")


def _start_lines(facts: Facts, before: int) -> Iterator[Line]:
    """Yield the first lines of the last attempt up to one, then the last ones behind it.

    Launchers print the command of a process that failed.
    """
    first = facts.progress.leg
    start = [line for line in facts.lines if line.number >= first]
    yield from (line for line in start[:FIRST_LINES] if line.number <= before)
    yield from (line for line in start[-LAST_LINES:] if line.number > before)


_ENDED_JOB = re.compile(r"\*\*\* JOB (\d{2,12}) ON \S{1,80} CANCELLED AT")
_MAILED_JOB = re.compile(r"Subject: Job (\d{2,12}): ")


def job_begin(facts: Facts) -> int:
    """Return the first line behind the last sign of another job in the same file; 0 where the file tells of one job."""
    last = 0
    jobs: list[tuple[str, int]] = []
    for line in facts.lines:
        text = line.text[:MOST_OF_LINE]
        if "*** JOB " in text and (match := _ENDED_JOB.search(text)):
            jobs.append((match[1], line.number + 1))
        elif text.startswith("Subject: Job ") and (match := _MAILED_JOB.match(text)):
            last = line.number if jobs and jobs[-1][0] != match[1] else last
            jobs.append((match[1], line.number))
    ended = [after for job, after in jobs if job != jobs[-1][0]]
    return max(last, ended[-1] if ended else 0)


def last_save(facts: Facts, before: int | None = None) -> Line | None:
    """Return the last line, up to one, that says that model or checkpoint were saved; None where none does."""
    for line in reversed(facts.lines):
        if before is not None and line.number >= before:
            continue
        if (
            "sav" in line.text
            or "Sav" in line.text
            or "rit" in line.text
            or "wrote" in line.text
            or "tored" in line.text
            or "artifact" in line.text
            or "SAV" in line.text
            or "ummoning" in line.text
        ) and _SAVED.search(line.text[:1000]):
            is_other = _NO_MODEL.search(line.text) and not re.search(r"check-?point|ckpt", line.text, re.IGNORECASE)
            if not is_other and not _NOT_SAVED.search(line.text[:1000]):
                return line
    return None


def version_of(facts: Facts, package: str, before: int) -> Setting | None:
    """Return the version of a package that the log prints, as `package==1.2`, `package 1.2` or `package version: 1.2`."""
    if not package:
        return None
    pattern = _version_pattern(package.lower())
    for line in _start_lines(facts, before):
        if match := pattern.search(line.text[:MOST_OF_LINE]):
            return Setting(package, match[1], line.number)
    return None


@lru_cache(maxsize=64)
def _version_pattern(package: str) -> re.Pattern[str]:
    with_hyphen = package.replace("_", "-")
    return re.compile(
        rf"(?<![\w/.-])(?:{re.escape(package)}|{re.escape(with_hyphen)})(?:==|\S{{0,40}} in \S{{1,200}} \("
        r"|[ _-]?version\W{1,3}| \(v?| v?|: v?|-)"
        r"(\d{1,3}\.\d{1,4}(?:\.\d[\w.+]{0,20})?)",
        re.IGNORECASE,
    )


BARS_OF_LINE, MOST_LINES_WITH_BARS, MOST_OF_BARS = 4000, 20_000, 600_000
"""Of a line at each end, and of all lines with bars, that are read: the last ones."""
BEGINNING, FINISHING = 0.2, 0.5
"""Shares of its total below which a bar that falls back begins anew: from anywhere, and once it had come to its end."""
MOST_WRITERS, FEWEST_IN_TURN = 16, 8
"""Programs whose bars may stand in turn, and bars that go on from one before the last, which show several."""
FEWEST_FALLS, FEWEST_OF_BAR, FIRST_PART = 3, 20, 4
"""Bars that stand lower than the one before them, of so many items at least, and not in their first part."""
_RATE_BEFORE = re.compile(r"^.{0,80}(?:it/s|s/it|B/s)[^\]]{0,40}\]")
"""The end of the bar before, which is no name of the next one where the middle of a line was left out."""
_DRAWN = re.compile(r"(?<!\d)\d{1,3}%\|[^|\r]{0,200}\| {0,8}(\d{1,15})/(\d{1,15}) \[")
_BAR = re.compile(
    r"(?<!\d)\d{1,3}%\|[^|]{0,400}\| {0,8}(\d{1,15})/(\d{1,15}) "
    r"\[((?:\d{1,4}:)?\d{1,2}:\d\d)<((?:\d{1,4}:)?\d{1,2}:\d\d|\?)(?:,|\])"
)
_LABEL = re.compile(r"[A-Za-z][^|\r\n%\x1b]{0,80}$")
_PREPARES = re.compile(
    r"load|fetch|map\b|tokeni|shard|filter|generating|sav(?:e|ing)|extract|cach|pack|group|concat|scann|build|convert|import"
    r"|process(?:ing)? (?:data|file)|collect",
    re.IGNORECASE,
)
"""What is done before and beside the work: downloads, tokenizing, loading of shards."""
_PART = re.compile(r"eval|valid|\bval\b|test|predict|infer|sampl|generat|sanity", re.IGNORECASE)
_OF_ONE_ROUND = re.compile(r"\b(?:epoch|fold|round|trial|seed|run|stage|phase)\W{0,4}\d", re.IGNORECASE)
_ROUND = re.compile(
    r"\b(?P<word>epoch|fold|trial|seed|round|stage|run|experiment|task|phase|cycle|repeat|configuration)s?\b\W{0,4}"
    r"(?P<at>\d{1,7}) ?(?:/|of) ?(?P<of>\d{1,7})(?![\d./])",
    re.IGNORECASE,
)
_ROUND_WORDS = re.compile(r"poch|POCH|old|rial|eed|ound|tage|[Rr]un|xperiment|ask|hase|ycle|epeat|onfiguration")


class Bar(NamedTuple):
    """How far a progress bar came."""

    position: int
    total: int
    spent_s: int
    left_s: int
    """At the mean rate: what a bar prints is the rate of its last moments."""
    line: int


class BarRound(NamedTuple):
    """What a log counts around its bars: epochs, folds, trials."""

    word: str
    at: int
    of: int
    line: int

    def __str__(self) -> str:
        return f"{self.word} {self.at} of {self.of} (job.log:{self.line})"


class _Draw(NamedTuple):
    label: str
    position: int
    total: int
    spent_s: int
    left_s: int
    line: int

    @property
    def key(self) -> tuple[str, int]:
        """What the states of one bar, and of those that follow it in each round, share."""
        return re.sub(r"\d", "", self.label), self.total

    @property
    def finished(self) -> bool:
        return self.position >= self.total


class _Instance(NamedTuple):
    """One bar from its first state to its last, by their places among all states of the log."""

    first: int
    last: int
    first_draw: _Draw
    state: _Draw
    anew: bool
    """Whether one of the same key came to its end before it."""


def run_bar(facts: Facts) -> Bar | None:
    """Return the bar of the last attempt that spans its work and has begun; None where none is sure to."""
    draws = list(_draws(facts))
    instances = list(_instances(draws))
    open_bars = [bar_drawn for bar_drawn in instances if not bar_drawn.state.finished and _alive(bar_drawn, instances, len(draws))]
    outermost = min(open_bars, key=lambda bar_drawn: bar_drawn.first, default=None)
    if outermost is None or not outermost.state.position or not _spans(outermost, instances, facts):
        return None
    state, first_draw = outermost.state, outermost.first_draw
    # a run that goes on from a save begins in its middle
    resumed = first_draw.position > 1 and first_draw.spent_s * 20 < first_draw.position
    start, spent = (first_draw.position, first_draw.spent_s) if resumed else (0, 0)
    rate = (state.spent_s - spent) / (state.position - start) if state.position > start else 0.0
    left_s = round(rate * (state.total - state.position)) if rate > 0 else state.left_s
    return Bar(state.position, state.total, state.spent_s, left_s, state.line)


def last_drawn(facts: Facts) -> str:
    """Return the last state of the bar that was drawn last, of a part of the work or of all, with its line; empty without one."""
    last = next(reversed(list(_draws(facts))), None)
    if last is None or not 0 < last.position < last.total or _PREPARES.search(last.label):
        return ""
    name = last.label.rpartition("]")[2].strip()
    label = f"{name}, " if name else ""
    return f"{label}{last.position} of {last.total} after {timedelta(seconds=last.spent_s)} (job.log:{last.line})"


def run_round(facts: Facts) -> BarRound | None:
    """Return the outermost count of epochs, folds or trials of the last attempt that is not at its end; None without one.

    A count that begins anew within another one is an inner one.
    """
    firsts: dict[str, BarRound] = {}
    lasts: dict[str, BarRound] = {}
    inner: set[str] = set()
    for line in facts.lines[-MOST_LINES_WITH_BARS:]:
        if line.number >= facts.progress.leg and (count := _round(line)) is not None:
            if count.word in lasts and count.at < lasts[count.word].at:
                inner.add(count.word)
            firsts.setdefault(count.word, count)
            lasts[count.word] = count
    outermost = min((first for word, first in firsts.items() if word not in inner), key=lambda first: first.line, default=None)
    last = lasts[outermost.word] if outermost is not None else None
    return last if last is not None and last.at < last.of else None


def several_draw(lines: Sequence[Line]) -> bool:
    """Tell whether the bars of some lines are of several programs.

    Their bars go on by one in turn, or fall back without beginning anew; that of one program goes on from where it was.
    """
    places = [(int(of), int(at)) for line in lines for at, of in _DRAWN.findall(line.text[: 5 * BARS_OF_LINE])]
    in_turn = [
        place
        for at, (total, place) in enumerate(places)
        if (total, place - 1) in places[max(0, at - MOST_WRITERS) : max(0, at - 1)] and places[at - 1] != (total, place - 1)
    ]
    falls = [
        total
        for (total, place), (next_total, later) in pairwise(places)
        if total == next_total >= FEWEST_OF_BAR and total / FIRST_PART <= later < place
    ]
    return len(in_turn) >= FEWEST_IN_TURN or len(falls) >= FEWEST_FALLS


def _round(line: Line) -> BarRound | None:
    if not _ROUND_WORDS.search(line.text[:200]):
        return None
    match = _ROUND.search(line.text[:200])
    at, of = (int(match["at"]), int(match["of"])) if match is not None else (0, 0)
    return BarRound(match["word"].lower(), at, of, line.number) if match is not None and at <= of and of > 1 else None


def _draws(facts: Facts) -> Iterator[_Draw]:
    """Yield the states of bars of the last attempt, in order; of a line that is redrawn the first and the last ones."""
    lines: list[Line] = []
    characters = 0
    for line in reversed(facts.lines):
        if line.number < facts.progress.leg or characters > MOST_OF_BARS or len(lines) >= MOST_LINES_WITH_BARS:
            break
        if "%|" in line.text:
            lines.append(line)
            characters += min(len(line.text), 2 * BARS_OF_LINE)
    for line in reversed(lines):
        ends = (line.text,) if len(line.text) <= 2 * BARS_OF_LINE else (line.text[:BARS_OF_LINE], line.text[-BARS_OF_LINE:])
        for text in ends:
            after = 0
            for match in _BAR.finditer(text):
                label = _LABEL.search(text[after : match.start()][-80:])
                drawn, total, spent, remaining = match.groups()
                left_s = _seconds(remaining) if remaining != "?" else 0
                name = _RATE_BEFORE.sub("", label[0]).strip(" :") if label is not None else ""
                yield _Draw(name, int(drawn), int(total), _seconds(spent), left_s, line.number)
                after = match.end()


def _instances(draws: Sequence[_Draw]) -> Iterator[_Instance]:
    going: dict[tuple[str, int], _Instance] = {}
    for place, draw in enumerate(draws):
        before = going.get(draw.key)
        if before is not None and not _begins_anew(before.state, draw):
            going[draw.key] = before._replace(last=place, state=draw)
            continue
        if before is not None:
            yield before
        going[draw.key] = _Instance(place, place, draw, draw, before is not None)
    yield from going.values()


def _begins_anew(before: _Draw, draw: _Draw) -> bool:
    """Tell whether a bar that stands lower than before is another one; what several ranks draw in turn is not."""
    if draw.position >= before.position and not (before.finished and draw.spent_s < before.spent_s):
        return False
    if before.finished:
        return draw.position <= FINISHING * draw.total or 2 * draw.spent_s < before.spent_s
    return draw.position <= BEGINNING * draw.total and 2 * draw.spent_s < before.spent_s


def _alive(bar: _Instance, instances: Sequence[_Instance], total: int) -> bool:
    """Tell whether a bar that is not at its end was still drawn: what came behind it stands inside of it."""
    if bar.last == total - 1:
        return True
    later = [bar_drawn for bar_drawn in instances if bar_drawn.last > bar.last]
    if any(bar_drawn.first < bar.first for bar_drawn in later):
        return False
    inside = [bar_drawn for bar_drawn in instances if bar.first < bar_drawn.first and bar_drawn.last < bar.last]
    alone = len(later) == 1 and not later[0].state.finished and later[0].state.spent_s <= bar.state.spent_s
    return bool(inside) or bar.first == bar.last or alone


def _spans(bar: _Instance, instances: Sequence[_Instance], facts: Facts) -> bool:
    """Tell whether a bar is of the whole work: not of one epoch, of a preparation, or of what comes behind a longer one."""
    state = bar.state
    if bar.anew or _OF_ONE_ROUND.search(state.label) or _PREPARES.search(state.label):
        return False
    whole = state.spent_s + state.left_s
    longer = [
        bar_drawn
        for bar_drawn in instances
        if bar_drawn.state.finished and bar_drawn.state.spent_s > whole and not _PREPARES.search(bar_drawn.state.label)
    ]
    trains = _PART.search(state.label) and any(point.loss is not None for point in facts.points)
    count = run_round(facts)
    return not longer and not trains and (count is None or count.line > state.line or count.of == state.total)


def _seconds(clock: str) -> int:
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + int(part)
    return seconds
