"""What `ls`, `find`, `stat`, `readlink` and their like print of folders, worked out from listings and never run."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.shell.folders import (
    MAGIC,
    MOST_FOUND,
    Collation,
    FolderEntry,
    FolderView,
    Unresolved,
    absolute,
    joined,
    plain,
    version_key,
)
from assistant.recover.shell.lines import Line, Stream, options_of
from assistant.recover.shell.parameters import Arithmetic

MOST_DEPTH = 8
"""Folders below one another that `find` is followed through."""
UNKNOWN_COLUMN = "\ufffc"
LONG = {"reverse": "r", "all": "a", "almost-all": "A", "directory": "d", "sort=time": "t", "sort=version": "v", "sort=size": "S"}


class Place(NamedTuple):
    """Where a command runs."""

    view: FolderView
    folder: str
    order: Collation


def listed(name: str, words: Sequence[str], place: Place) -> Stream:
    """Return what a command that looks into folders prints.

    Args:
        name: One of `LISTING`.
        words: Its words, in which quoted characters of patterns are protected.
        place: Where it runs.

    Raises:
        Unresolved: It, or an option of it, is none that is followed, or a folder cannot be read.
    """
    return LISTING[name](list(words), place)


def paths_of(words: Sequence[str], place: Place, *, empty: bool = False) -> list[str]:
    """Return words as a shell hands them on: a pattern becomes the paths that it means.

    Args:
        words: Of which quoted characters of patterns are protected.
        place: Where the command runs.
        empty: Whether a pattern that means nothing becomes nothing, and not itself.
    """
    paths: list[str] = []
    for word in words:
        if MAGIC.search(word):
            place.view.used.add(word)
            matches = place.view.matching(word, place.folder, place.order)
            paths += matches or ([] if empty else [plain(word)])
        else:
            if re.search(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", word):
                raise Unresolved(word)
            paths.append(plain(word))
    return paths


def _ls(words: list[str], place: Place) -> Stream:
    words = [f"-{LONG[word[2:]]}" if word[2:] in LONG and word.startswith("--") else word for word in words]
    words = [word for word in words if word not in ("--color=never", "--color=auto", "--quoting-style=literal", "-N")]
    options, operands = options_of(words, "1rtvSUaAdlpLgon", "")
    if "U" in options or len(set(options) & set("tvS")) > 1:
        raise Unresolved("ls")
    paths = paths_of(operands, place, empty=True) if operands else ["."]
    path_entries = [(path, entry) for path in paths if (entry := place.view.entry(absolute(path, place.folder))) is not None]
    place.view.used.update(absolute(path, place.folder) for path in paths)
    folders = [(path, entry) for path, entry in path_entries if entry.folder and "d" not in options]
    files = [(path, entry) for path, entry in path_entries if (path, entry) not in folders]
    rows = _ls_sorted([(path, absolute(path, place.folder), entry) for path, entry in files], options, place)
    lines = [_ls_line(*row, options) for row in rows]
    for path, _ in sorted(folders, key=lambda row: place.order(row[0])):
        if len(folders) > 1 or files:
            raise Unresolved("ls of several folders")
        base = place.view.real(absolute(path, place.folder))
        hidden = set(options) & set("aA")
        inner = [entry for entry in place.view.entries(base) if hidden or not entry.name.startswith(".")]
        if "a" in options:
            raise Unresolved("ls -a")
        lines += [Line("total 0")] * bool(set(options) & set("lgon"))
        above = absolute(path, place.folder)
        rows = _ls_sorted([(entry.name, joined(above, entry.name), entry) for entry in inner], options, place)
        lines += [_ls_line(*row, options) for row in rows]
    return Stream(tuple(lines))


def _ls_sorted(
    rows: list[tuple[str, str, FolderEntry]], options: dict[str, str], place: Place
) -> list[tuple[str, str, FolderEntry]]:
    rows = sorted(rows, key=lambda row: place.order(row[0]))
    if "t" in options:
        if "L" in options and any(entry.link for _, _, entry in rows):
            raise Unresolved("ls -L")
        rows = sorted(rows, key=lambda row: -row[2].changed_ns)
    elif "S" in options:
        rows = sorted(rows, key=lambda row: -row[2].size)
    elif "v" in options:
        rows = sorted(rows, key=lambda row: version_key(row[0]))
    return rows[::-1] if "r" in options else rows


def _ls_line(path: str, origin: str, entry: FolderEntry, options: dict[str, str]) -> Line:
    text = path + ("/" if "p" in options and entry.folder and not path.endswith("/") else "")
    if set(options) & set("lgon"):
        columns = 8 - sum(letter in options for letter in "go")
        text = " ".join([UNKNOWN_COLUMN] * columns + [text + (f" -> {entry.link}" if entry.link else "")])
    return Line(text, origin)


def _find(words: list[str], place: Place) -> Stream:
    starts = []
    while words and not words[0].startswith(("-", "(", "!")):
        starts.append(words.pop(0))
    limits = {"-maxdepth": 10**6, "-mindepth": 0}
    expression: list[str] = []
    while words:
        word = words.pop(0)
        if word in limits and words and words[0].isdecimal():
            limits[word] = int(words.pop(0))
        elif word not in ("-L", "-P", "-H", "-follow", "-print", "-print0", "-noleaf", "-depth"):
            expression.append(word)
        elif word in ("-L", "-follow"):
            raise Unresolved("find -L")
    form, action = _action(expression)
    test = _Test(expression)
    accepts = test.any()
    if test.words:
        raise Unresolved(" ".join(test.words))
    lines: list[Line] = []
    for start in paths_of(starts or ["."], place, empty=True):
        base = absolute(start, place.folder)
        place.view.used.add(base)
        for level, path, entry in _below(start, base, place, limits["-maxdepth"]):
            if level >= limits["-mindepth"] and accepts(path, entry):
                lines.append(Line(_form(form, path, start, level, entry), absolute(path, place.folder)))
    if action:
        return with_arguments(action, Stream(tuple(lines), ordered=False), place)
    return Stream(tuple(lines), ordered=len(lines) < 2)


def _action(expression: list[str]) -> tuple[str, list[str]]:
    """Take `-printf FORM` or `-exec … {} +` out of the words of find."""
    if "-printf" in expression:
        at = expression.index("-printf")
        form = expression[at + 1] if at + 1 < len(expression) else ""
        del expression[at : at + 2]
        return form, []
    if "-exec" in expression:
        at = expression.index("-exec")
        end = next((place for place in range(at, len(expression)) if expression[place] in (";", "+", r"\;")), len(expression))
        action = expression[at + 1 : end]
        if "{}" not in action or end >= len(expression):
            raise Unresolved("find -exec")
        each = expression[end] != "+"
        del expression[at : end + 1]
        return "", [*(["-n1"] if each else []), *[word for word in action if word != "{}"]]
    return "", []


def _below(start: str, base: str, place: Place, depth: int) -> Iterator[tuple[int, str, FolderEntry]]:
    top = place.view.entry(base)
    if top is None:
        return
    yield 0, start, top
    waiting = [(start, base, 1)] if top.folder and not top.link else []
    entries_seen = 0
    while waiting:
        shown_path, folder, level = waiting.pop(0)
        if level > depth:
            continue
        if level > MOST_DEPTH:
            raise Unresolved(f"{base} is too deep")
        for entry in place.view.entries(folder):
            entries_seen += 1
            if entries_seen > MOST_FOUND:
                raise Unresolved(f"{base} holds too much")
            path = f"{shown_path.rstrip('/')}/{entry.name}"
            yield level, path, entry
            if entry.folder and not entry.link:
                waiting.append((path, joined(folder, entry.name), level + 1))


Accepts = Callable[[str, FolderEntry], bool]


class _Test:
    """Reads the tests of find: `-type f ( -name a -o -name b ) ! -name c`."""

    def __init__(self, words: list[str]) -> None:
        self.words = words

    def any(self) -> Accepts:
        tests = [self._every()]
        while self.words[:1] in (["-o"], ["-or"]):
            self.words.pop(0)
            tests.append(self._every())
        return lambda path, entry: any(test(path, entry) for test in tests)

    def _every(self) -> Accepts:
        tests: list[Accepts] = []
        while self.words and self.words[0] not in ("-o", "-or", ")"):
            if self.words[0] in ("-a", "-and"):
                self.words.pop(0)
            else:
                tests.append(self._one())
        return lambda path, entry: all(test(path, entry) for test in tests)

    def _one(self) -> Accepts:
        word = self.words.pop(0)
        if word in ("!", "-not") and self.words:
            inner = self._one()
            return lambda path, entry: not inner(path, entry)
        if word == "(":
            group = self.any()
            if not self.words or self.words.pop(0) != ")":
                raise Unresolved("find (")
            return group
        if not self.words:
            raise Unresolved(word)
        value = plain(self.words.pop(0))
        if word == "-type" and value in ("f", "d", "l"):
            file_kinds = {"l": (True,), "d": (False, True), "f": (False, False)}[value]
            return lambda path, entry: (bool(entry.link), entry.folder)[: len(file_kinds)] == file_kinds
        if word in ("-name", "-iname"):
            fold = str.lower if word == "-iname" else str
            return lambda path, entry: fnmatch.fnmatchcase(fold(entry.name), fold(value))
        if word in ("-path", "-wholename"):
            return lambda path, entry: fnmatch.fnmatchcase(path, value)
        raise Unresolved(word)


def _form(form: str, path: str, start: str, level: int, entry: FolderEntry) -> str:
    """Return what `-printf` prints of a file; one line, as the form has to end it."""
    if not form:
        return path
    text = re.sub(r"(?:\\n|\\0|\\000)$", "", form)
    if text == form:
        raise Unresolved(form)
    below = path[len(start) :].lstrip("/") if level else ""
    seconds, nanoseconds = divmod(entry.changed_ns, 10**9)
    values = {"p": path, "f": entry.name, "P": below, "h": str(PurePosixPath(path).parent), "s": str(entry.size), "d": str(level)}
    values |= {"T@": f"{seconds}.{nanoseconds:09d}0", "%": "%"}

    def fill(match: re.Match[str]) -> str:
        if match[1] is not None:
            if match[1] not in values:
                raise Unresolved(form)
            return values[match[1]]
        if match[0] not in ("\\t", "\\\\"):
            raise Unresolved(form)
        return {"\\t": "\t", "\\\\": "\\"}[match[0]]

    return re.sub(r"%(T@|.)|\\.", fill, text)


def _stat(words: list[str], place: Place) -> Stream:
    words = [re.sub(r"^--(?:format|printf)=|^--format$", "-c", word) for word in words]
    options, operands = options_of(words, "L", "c")
    form = plain(options.get("c", ""))
    if not form or "L" in options:
        raise Unresolved("stat")
    lines = []
    for path in paths_of(operands, place):
        entry = place.view.entry(absolute(path, place.folder))
        place.view.used.add(absolute(path, place.folder))
        if entry is None:
            continue
        values = {"n": path, "Y": str(entry.changed_ns // 10**9), "s": str(entry.size), "%": "%"}
        text = re.sub(r"%(.)", lambda match: values.get(match[1], UNKNOWN_COLUMN), form).removesuffix("\\n")  # noqa: B023
        if UNKNOWN_COLUMN in text:
            raise Unresolved(form)
        lines.append(Line(text, absolute(path, place.folder)))
    return Stream(tuple(lines))


def _readlink(words: list[str], place: Place) -> Stream:
    options, operands = options_of([word for word in words if word not in ("--canonicalize", "-s")], "femnq", "")
    lines = []
    for path in paths_of(operands, place):
        whole = absolute(path, place.folder)
        place.view.used.add(whole)
        entry = place.view.entry(whole)
        if set(options) & set("fem"):
            if entry is not None or "m" in options or ("f" in options and place.view.entry(str(PurePosixPath(whole).parent))):
                real = place.view.real(whole)
                lines.append(Line(real, real))
        elif entry is not None and entry.link:
            lines.append(Line(entry.link, joined(str(PurePosixPath(whole).parent), entry.link)))
    return Stream(tuple(lines))


def _realpath(words: list[str], place: Place) -> Stream:
    return _readlink(["-f", *words], place)


def _echo(words: list[str], place: Place) -> Stream:
    words = words[1:] if words[:1] == ["-n"] else words
    if words[:1] == ["-e"] or any("\\" in word for word in words):
        raise Unresolved("echo -e")
    paths = paths_of(words, place)
    return Stream((Line(" ".join(paths), absolute(paths[0], place.folder) if len(paths) == 1 else ""),))


def _printf(words: list[str], place: Place) -> Stream:
    if words and words[0] in ("%s\\n", "%s\\0"):
        return Stream(tuple(Line(path, absolute(path, place.folder)) for path in paths_of(words[1:], place)))
    return Stream(tuple(Line(text) for text in formatted([plain(word) for word in words]).split("\n")))


def formatted(words: Sequence[str]) -> str:
    """Return what `printf FORM VALUES` prints where the form takes all values at once.

    Raises:
        Unresolved: It is of another form.
    """
    form, values = (words[0], list(words[1:])) if words else ("", [])
    if not words or any(MAGIC.search(word) for word in values) or len(re.findall(r"%[^%]", form)) != len(values):
        raise Unresolved("printf")

    def fill(match: re.Match[str]) -> str:
        if match[0] in ("%%", "\\n", "\\t"):
            return {"%%": "%", "\\n": "\n", "\\t": "\t"}[match[0]]
        if match[2] == "s" and not match[1]:
            return values.pop(0)
        value = values.pop(0) if match[2] in ("d", "i") else ""
        if not re.fullmatch(r"-?(?:0|[1-9]\d{0,17})", value):
            raise Unresolved(form)
        return f"{int(value):{match[1]}d}"

    filled = re.sub(r"%(0?\d{0,2})([a-zA-Z])|%%|\\.|%.?", fill, form)
    return filled.removesuffix("\n")


def _seq(words: list[str], place: Place) -> Stream:
    numbers = [int(word) for word in words if re.fullmatch(r"-?\d{1,9}", word)]
    if not 1 <= len(numbers) == len(words) <= 3 or (len(words) == 3 and not numbers[1]):
        raise Unresolved("seq")
    first, step, last = {
        1: (1, 1, numbers[0]),
        2: (numbers[0], 1, numbers[-1]),
        3: (numbers[0], numbers[1 % len(words)], numbers[-1]),
    }[len(numbers)]
    values = range(first, last + (1 if step > 0 else -1), step)
    if len(values) > MOST_FOUND:
        raise Unresolved("seq")
    return Stream(tuple(Line(str(value)) for value in values))


def _expr(words: list[str], place: Place) -> Stream:
    if not all(re.fullmatch(r"-?\d{1,18}|[-+*/%()]", plain(word)) for word in words):
        raise Unresolved("expr")
    return Stream((Line(str(Arithmetic(" ".join(map(plain, words)), _no_name, lambda name, value: None).value())),))


def _no_name(name: str) -> str:
    raise Unresolved(name)


def with_arguments(words: list[str], stream: Stream, place: Place) -> Stream:
    """Work out `xargs COMMAND` for the commands that take paths."""
    single = False
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-n1", "-L1") or (option in ("-n", "-L") and words[:1] == ["1"]):
            words = words[1:] if option in ("-n", "-L") else words
            single = True
        elif option not in ("-r", "-0", "-0r", "-r0", "--no-run-if-empty", "--null", "-t"):
            raise Unresolved(f"xargs {option}")
    if not words or (words[0] not in LISTING and words[0] not in ("basename", "dirname")):
        raise Unresolved("xargs")
    if not stream.lines:
        raise Unresolved("xargs without lines")
    name, options = words[0], words[1:]
    paths = [line.text for line in stream.lines]
    if any(re.search(r"\s|['\"\\]", path) for path in paths):
        raise Unresolved("names with blanks")
    if name in ("basename", "dirname"):
        if options not in ([], ["-a"]) or not (single or options or name == "dirname" or len(paths) == 1):
            raise Unresolved("xargs basename")
        pures = [PurePosixPath(line.text) for line in stream.lines]
        texts = [pure.name if name == "basename" else str(pure.parent) for pure in pures]
        return Stream(tuple(line._replace(text=text) for line, text in zip(stream.lines, texts, strict=True)), stream.ordered)
    if single:
        parts = [listed(name, [*options, path], place) for path in paths]
        return Stream(tuple(line for part in parts for line in part.lines), stream.ordered)
    sorts = name == "ls"
    if not stream.ordered and not sorts:
        lines_listed = listed(name, [*options, *paths], place)
        return Stream(lines_listed.lines, ordered=len(lines_listed.lines) < 2)
    return listed(name, [*options, *paths], place)


LISTING: dict[str, Callable[[list[str], Place], Stream]] = {
    "ls": _ls,
    "find": _find,
    "stat": _stat,
    "readlink": _readlink,
    "realpath": _realpath,
    "echo": _echo,
    "printf": _printf,
    "seq": _seq,
    "expr": _expr,
}
