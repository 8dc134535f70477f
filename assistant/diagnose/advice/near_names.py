"""Name what a log itself has in place of a name that was not there: a path, key, option or setting that is spelt nearly alike.

A path that is missing and one that the same log lists differ mostly in one part, and there by a hyphen, a capital or a letter. What
differs in numbers only (a step, a shard) is another thing and no slip. Where no name is near, the folder up to which the log shows
files tells from where on something is missing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.diagnose.readers.streams import host_like
from assistant.records import Citation

MOST_LINES, MOST_OF_LINE, LINES_BEHIND = 4000, 2000, 30
"""Lines of the attempt that are read for names, the first of them; characters of each; lines behind the cited one."""
SLIP, SHORTEST = 0.8, 4
"""Likeness of two names, 0 to 1, from which on one is taken for a slip of the other, and letters that it takes."""
MOST_ALIKE, WORD_SLIP = 3, 0.6
"""Words of a name from which on two names may be like each other by the others, and likeness of the one that differs."""
SHORTEST_HEAD = 3
"""Characters of the first folder of a path, with its signs, by which others below it are looked for."""
LEAST_SHARED = 1
"""Folders that a relative path has to share with another one; an absolute one shares its root besides."""
LINES_OF_KEYS = 60
"""Lines before a refused key among which the keys that there are may be printed."""
_MISSING = re.compile(
    r"(?:No such file or directory|Errno 2\]|not found|does not exist|doesn't exist|cannot open|can't open|Not a directory)\b"
)
_QUOTED_PATH = re.compile(r"['\"`]((?:/|~/|\.{1,2}/)?[\w.@+=~%-]+(?:/[\w.@+=~%-]+)+/?)['\"`]")
_PATH = re.compile(r"[\w.@+=~/-]{1,400}")
_BARE_PATH = re.compile(r"(?:^|[\s:=(])((?:/|~/)[\w.@+=~-]+(?:/[\w.@+=~-]+)+)")
_HOST = re.compile(r"^(?!(?:INFO|WARN|WARNING|DEBUG|ERROR|Error|Warning)\b)([\w.-]{2,80}): ")
"""What pdsh and launchers of several nodes put before each line."""
_OPENS = re.compile(r"\b(?:load|read|open|sav|wr[io]t|creat|buil[dt]|us(?:e|ing)\b|found|cached?)", re.IGNORECASE)
_FAILS = re.compile(r"[Nn]o such file|[Nn]ot found|[Nn]ot exist|n't exist|n't open|[Cc]annot|[Ff]ailed|rror\b|[Mm]issing")
_WORDS = re.compile(r"[^\W_]+")
_NORMAL = re.compile(r"[\W_]+")
_DIGITS = re.compile(r"\d+")
_REFUSED = (
    re.compile(r"KeyError: ['\"](?P<name>[\w./ -]{2,80})['\"]"),
    re.compile(r"Key ['\"](?P<name>[\w.-]{2,80})['\"] (?:is )?not (?:in struct|found)"),
    re.compile(r"invalid choice: ['\"]?(?P<name>[\w.-]{2,80})['\"]? \(choose from "),
    re.compile(r"[Cc]ould not (?:find|load) ['\"](?:[\w.-]+/)+(?P<name>[\w.-]{2,80})['\"]"),
    re.compile(r"[Nn]o such option:? ['\"]?-{0,2}(?P<name>[\w-]{2,80})"),
    re.compile(r"Could not override ['\"](?:[\w-]+\.)*(?P<name>[\w-]{2,80})['\"]"),
    re.compile(
        r"(?:no|unknown|unexpected|invalid|missing) (?:attribute|key|field|column|option|setting|argument|parameter|variable|"
        r"keyword argument)s?:? ['\"](?P<name>[\w.-]{2,80})['\"]",
        re.IGNORECASE,
    ),
    re.compile(r"['\"](?P<name>[\w.-]{2,80})['\"] (?:is not in|not in|does not exist in|is not a (?:valid|known))", re.IGNORECASE),
)
"""Forms in which a name is refused that is looked up among others."""
_KEY_LINE = re.compile(r"^[\s>|-]{0,30}['\"]?([A-Za-z_][\w.-]{1,60})['\"]?\s{0,2}[:=]")
_QUOTED_KEY = re.compile(r"['\"]([A-Za-z_][\w.-]{1,60})['\"]")
_CHOICES = re.compile(r"\((?:choose from|Possible options:?|Did you mean) (.{1,1600})\)|Did you mean (.{1,200})\?")
_LISTED = re.compile(r"^[\t >*-]{1,12}([A-Za-z_][\w.-]{1,60})$")
"""One of the options that a program lists, each on a line."""
_CHOICE = re.compile(r"\w[\w.-]{1,80}")
_OPTION_KEY = re.compile(r"(?<![\w-])--?([A-Za-z][\w-]{2,60})|(?<![\w.])([A-Za-z_]\w{2,60})=")


class _Near(NamedTuple):
    listed: str
    """What the log has, up to the part that differs."""
    part: str
    missing_part: str
    line: int


def near_name(cited: Citation, facts: Facts) -> str:
    """Return what the log has in place of a missing path or a refused name; empty where nothing in it is near."""
    if cited.file != "job.log":
        return ""
    message = " ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]
    if (path := missing_path(message)) and (near := _near_path(path, cited, facts)) is not None:
        return f"The log has {near.listed} (job.log:{near.line}), with `{near.part}` for `{near.missing_part}`: correct that name."
    if (name := _refused(message)) and (key := _near_key(name, cited, facts)) is not None:
        return f"The log has `{key[0]}` (job.log:{key[1]}) where `{name}` is asked for: write it so."
    return ""


def known_folder(cited: Citation, facts: Facts) -> tuple[str, str]:
    """Return up to which folder the log shows other files beside a missing one, and where it shows them; two empty texts without.

    It is the longest folder that the missing path shares with a path in a line that tells of no failure.
    """
    path = missing_path(" ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]) if cited.file == "job.log" else ""
    if not path:
        return "", ""
    parts = path.split("/")
    longest, example = LEAST_SHARED + path.startswith("/"), ""
    inside = [episode for episode in facts.episodes if episode.first <= cited.line]
    for number, parts_there in _paths_below(parts, cited, facts):
        shared = next((place for place, (a, b) in enumerate(zip(parts, parts_there, strict=False)) if a != b), 0)
        if longest <= shared < len(parts_there) and number < cited.line and not any(number in episode.lines for episode in inside):
            longest, example = shared + 1, f"{'/'.join(parts_there)} (job.log:{number})"
    return ("/".join(parts[: longest - 1]), example) if example else ("", "")


def on_other_host(cited: Citation, facts: Facts) -> str:
    """Return on which host the log shows the file that is missing on another one; empty where it does not tell hosts apart."""
    path = missing_path(" ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]) if cited.file == "job.log" else ""
    host = _HOST.match(cited.text)
    if not path or host is None or not path.startswith("/"):
        return ""
    lines = facts.between(max(facts.progress.leg, cited.line - MOST_LINES), cited.line - 1)
    if not host_like(host[1]) and not any("Traceback" in line.text and line.text.startswith(f"{host[1]}: ") for line in lines):
        return ""
    for line in lines:
        other_host = _HOST.match(line.text) if path in line.text else None
        if other_host is None or other_host[1] == host[1] or _FAILS.search(line.text) or _OPENS.search(line.text) is None:
            continue
        return (
            f"{path} is missing on {host[1]} only: {other_host[1]} (job.log:{line.number}) has it, so make or copy it there, too, "
            f"or put it on "
            "storage that all nodes share; where the program makes it itself, let one process of each node do that, and the "
            "others wait."
        )
    return ""


def missing_path(message: str) -> str:
    """Return the path of at least two parts that a message says is not there; empty where it names none."""
    if _MISSING.search(message) is None:
        return ""
    match = _QUOTED_PATH.search(message) or _BARE_PATH.search(message)
    return match[1].rstrip("/.") if match is not None else ""


def _near_path(path: str, cited: Citation, facts: Facts) -> _Near | None:
    """Return the path of the log that differs from a missing one in one part, by a slip; None where none does."""
    parts = path.split("/")
    for number, parts_there in _paths_below(parts, cited, facts):
        place = next((at for at, (a, b) in enumerate(zip(parts, parts_there, strict=False)) if a != b), -1)
        if place > 0 and is_slip_of(parts[place], parts_there[place]):
            return _Near("/".join(parts_there[: place + 1]), parts_there[place], parts[place], number)
    return None


def _paths_below(parts: Sequence[str], cited: Citation, facts: Facts) -> Iterator[tuple[int, list[str]]]:
    """Yield the parts of the paths in the lines of the attempt that begin with the same folder and tell of no failure."""
    head = "/".join(parts[: 1 + (not parts[0])]) + "/"
    if len(head) < SHORTEST_HEAD:
        return
    for line in facts.between(facts.progress.leg, cited.line + LINES_BEHIND)[:MOST_LINES]:
        text = line.text[:MOST_OF_LINE]
        at = text.find(head)
        if at < 0 or line.number == cited.line or _FAILS.search(text):
            continue
        while at >= 0:
            if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "./-_~"):
                match = _PATH.match(text, at)
                if match is not None:
                    yield line.number, match[0].rstrip("/.").split("/")
            at = text.find(head, at + len(head))


def is_slip_of(name: str, listed: str) -> bool:
    """Tell whether two names differ by a slip: in signs and capitals, or in few letters; numbers that differ are none."""
    if _NORMAL.sub("", name.lower()) == _NORMAL.sub("", listed.lower()):
        return name != listed
    if min(len(name), len(listed)) < SHORTEST or _DIGITS.findall(name) != _DIGITS.findall(listed):
        return False
    if difflib.SequenceMatcher(None, name.lower(), listed.lower()).ratio() < SLIP:
        return False
    words, words_listed = _WORDS.findall(name.lower()), _WORDS.findall(listed.lower())
    apart = [(a, b) for a, b in zip(words, words_listed, strict=False) if a != b]
    if len(words) != len(words_listed) or len(words) < MOST_ALIKE or len(apart) != 1:
        return True
    return difflib.SequenceMatcher(None, *apart[0]).ratio() >= WORD_SLIP  # of a row of names one word is meant to differ


def _refused(message: str) -> str:
    match = next((match for pattern in _REFUSED if (match := pattern.search(message))), None)
    return match["name"] if match is not None else ""


def _near_key(name: str, cited: Citation, facts: Facts) -> tuple[str, int] | None:
    """Return the key that the log prints around a refused one and that is nearest to it, with its line; None without one."""
    keys: dict[str, int] = {}
    first, last = max(facts.progress.leg, cited.line - LINES_OF_KEYS), cited.line + LINES_BEHIND
    near = [episode for episode in facts.episodes if episode.first <= last and episode.last >= first]
    for line in facts.between(first, last):
        text = line.text[:MOST_OF_LINE]
        if line.number != cited.line and any(line.number in episode.lines for episode in near):
            continue  # lines of source, of which the refused one is mostly one
        names = [*_KEY_LINE.findall(text), *_QUOTED_KEY.findall(text)]
        names += [first or second for first, second in _OPTION_KEY.findall(text)] if line.number != cited.line else []
        names += _LISTED.findall(text) if line.number > cited.line else []
        names += _CHOICE.findall(match[1] or match[2]) if line.number == cited.line and (match := _CHOICES.search(text)) else []
        for key in names:
            keys.setdefault(key, line.number)
    alike = [key for key in keys if is_slip_of(name, key)]
    best = max(alike, key=lambda key: difflib.SequenceMatcher(None, name, key).ratio(), default=None)
    return (best, keys[best]) if best is not None else None
