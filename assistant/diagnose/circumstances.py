"""Read what a log says about its own run: settings, versions and saves. Each with the line that says it.

Programs print their settings in a dozen ways (`--name value`, `name=value`, `"name": value`, `name ..... value`, lists of
arguments); what they have in common is a name, a sign and a value, so only the name is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
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
    rf"|\bsave {_WHOLE}:? (?:to |in |as |at )?[\w.~-]{{0,80}}/\S",
    re.IGNORECASE,
)
MOST_SETTINGS, MOST_NAMES, MOST_VALUES = 3, 6, 6
_TYPES = frozenset({"int", "str", "float", "bool", "dict", "list", "tuple", "type", "object", "tensor"})
_SETTING_NAME = re.compile(r"\b(?:[a-z][a-z0-9]*_[a-z0-9_]{2,60})\b")
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
    names = dict.fromkeys([*_SETTING_NAME.findall(message), *_READ_SETTING.findall(source)])
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


def last_save(facts: Facts, before: int | None = None) -> Line | None:
    """Return the last line, up to one, that says that model or checkpoint were saved; None where none does."""
    for line in reversed(facts.lines):
        if before is not None and line.number >= before:
            continue
        if (
            "sav" in line.text or "Sav" in line.text or "rit" in line.text or "tored" in line.text or "SAV" in line.text
        ) and _SAVED.search(line.text[:1000]):
            other = _NO_MODEL.search(line.text) and not re.search(r"check-?point|ckpt", line.text, re.IGNORECASE)
            if not other and not _NOT_SAVED.search(line.text[:1000]):
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
