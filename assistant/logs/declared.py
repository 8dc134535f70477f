"""The log files that a batch script names: output of its steps, redirections, `tee`, log options of launchers. Pure.

A path is given with gaps where only the run knows the text: `RANK`, `NODE` and `LOCAL` say what stands there, `ANY` is any text
within one part of the path. `shown_pattern` writes them as `{rank}`, `{node}`, `{local}`, `{any}`.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from assistant.linear_patterns import LinearPattern, linear_pattern
from assistant.logs.shell import KEYWORDS, Redirection, ShellCommand, Word, WordPiece, commands

RANK, NODE, LOCAL, ANY = "\ue000", "\ue001", "\ue002", "\ue003"
GAPS = {RANK: "{rank}", NODE: "{node}", LOCAL: "{local}", ANY: "{any}"}
MOST_PATTERNS = 64
MOST_VALUES = 6
"""Of a variable that the script sets more than once, and of a word."""
_NO_FILE = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/.*|full|zero)|/proc/self/fd/.*|&?-|none", re.IGNORECASE)
_DATA = re.compile(
    r"\.(?:json|jsonl|ya?ml|toml|csv|tsv|sh|py|cfg|ini|conf|env|pid|npy|npz|bin|pt|html?|md|lock|xml|sbatch|sql|key|pem)$"
)
_WRITERS_OF_DATA = frozenset(
    "echo printf cat sed awk gawk jq yq envsubst hostname date scontrol squeue sinfo sacct nvidia-smi dcgmi rocm-smi env printenv "
    ": ls find grep sort head tail cut tr wc df du free vmstat iostat sar top ps lscpu lspci ibstat git pip conda module mkdir "
    "touch true false cd export set ulimit uname id whoami curl wget tar gzip base64 openssl seq md5sum sha256sum".split()
)
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh"})
_SRUN_WORDS = (
    "label unbuffered overlap no-kill overcommit oversubscribe contiguous pty quiet verbose disable-status debugger-test "
    "multi-prog spread-job test-only use-min-nodes reboot hold exact whole interactive exclusive kill-on-bad-exit immediate "
    "propagate nice preserve-env wait-all-nodes ignore-pbs join stepmgr"
)
_SRUN_PLAIN = frozenset(_SRUN_WORDS.split())
"""Long options of srun whose value, if any, stands behind `=`."""
_SRUN_SHORT_PLAIN = frozenset("lusOkQvEXHZKI")
_LAUNCHERS = frozenset({"torchrun", "mpirun", "mpiexec", "orterun"})
_PLACEHOLDER = re.compile(r"%(\d{0,2})([%A-Za-z])")


class LogOrigin(StrEnum):
    """How a log of a job was found; the values are words of the report."""

    OUTPUT = "standard output"
    ERROR = "standard error"
    STEP = "output of a step"
    REDIRECTION = "redirection in the script"
    OPTION = "option of the command line"
    DIRECTIVE = "#NIGHTSHIFT logs="
    SITE = "the site's setting"
    OPEN_FILE = "open file of a process"
    CONSOLE = "console output of a run"


class LogPattern(NamedTuple):
    """A log file, or one for each rank or node, that a job writes."""

    path: str
    """Absolute, with gaps."""
    origin: LogOrigin
    how: str
    """The words that name it, such as `srun --output=%x_%t.log`."""
    append: bool = False
    """Whether what stood in the file before stays."""


class Declared(NamedTuple):
    """What a script says about its logs."""

    patterns: tuple[LogPattern, ...]
    problems: tuple[str, ...] = ()
    """What names a log that cannot be resolved, in words."""
    called: tuple[str, ...] = ()
    """Absolute paths of scripts that it runs, whose text may name more."""
    nowhere: tuple[str, ...] = ()
    """Words by which output goes to /dev/null."""


@dataclass
class Surroundings:
    """What a script is run with."""

    work_dir: str
    """Absolute; empty when it is not known."""
    placeholders: Mapping[str, str]
    """Letters of `srun --output` and what they stand for; gaps are allowed."""
    variables: Mapping[str, str]
    """Known variables; gaps are allowed."""
    arguments: Sequence[str] = ()


def shown_pattern(path: str) -> str:
    """Return a path with its gaps as people read them."""
    return "".join(GAPS.get(character, character) for character in path)


def declared_logs(script: str, surroundings: Surroundings) -> Declared:
    """Return the logs that a script names.

    Args:
        script: Text of a shell script; a script of another language names none.
        surroundings: What is known about the job.
    """
    first = script.partition("\n")[0]
    if first.startswith("#!") and not re.search(r"\b(?:ba|da|k|z|tc|c|)sh\b", first):
        return Declared(())
    reading = _Reading(surroundings)
    for command in commands(script):
        reading.take(command)
    return Declared(
        tuple(dict.fromkeys(reading.patterns))[:MOST_PATTERNS],
        tuple(dict.fromkeys(reading.problems))[:MOST_PATTERNS],
        tuple(dict.fromkeys(reading.called)),
        tuple(dict.fromkeys(reading.nowhere)),
    )


def of_pattern(text: str, surroundings: Surroundings, origin: LogOrigin, how: str, *, append: bool = False) -> LogPattern | None:
    """Return a pattern as a directive or a site's setting writes it, with `%j`, `$NAME` and `*`; None where it names no file."""
    reading = _Reading(surroundings)
    word = next((command.words[0] for command in commands(f'"{text.replace("*", ANY)}"') if command.words), None)
    values = reading.values(word) if word is not None else []
    path = reading.absolute(_placed(values[0], surroundings.placeholders)) if values else ""
    return LogPattern(path, origin, how, append) if path else None


@dataclass
class _Reading:
    """State while a script is read from its top to its end."""

    around: Surroundings
    patterns: list[LogPattern] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    nowhere: list[str] = field(default_factory=list)
    _assigned: dict[str, list[str]] = field(default_factory=dict)
    _folders: list[str | None] = field(default_factory=list)
    _pipeline_writes_data: bool = False

    def take(self, command: ShellCommand) -> None:
        self._enter(command.level)
        for name, word in command.assignments:
            self._assign(name, self.values(word))
        words = command.words
        first = _program(words[0]) if words else ""
        if not command.piped:
            self._pipeline_writes_data = _program_of(words) in _WRITERS_OF_DATA
        if first == "for" and len(words) > 2 and words[2].plain == "in":
            items = [value for word in words[3:] for value in self.values(word)]
            self._assigned[words[1].plain] = items[:MOST_VALUES] if items and len(items) <= MOST_VALUES else [ANY]
        elif first in ("cd", "pushd") and len(words) > 1:
            target = self.values(words[-1])
            self._folders[-1] = self.absolute(target[0]) or None if target else None
        elif first == ":":
            for piece in (piece for word in words[1:] for piece in word.pieces if piece.default is not None):
                self._assign(piece.name, self.values(Word((piece,), "")))
        self._programs(command)
        for redirection in command.redirections:
            self._redirected(command, redirection)

    def _enter(self, level: int) -> None:
        if not self._folders:
            self._folders.append(self.around.work_dir or None)
        while len(self._folders) <= level:
            self._folders.append(self._folders[-1])
        del self._folders[level + 1 :]

    def _assign(self, name: str, values: Sequence[str]) -> None:
        before = self._assigned.get(name, [])
        self._assigned[name] = list(dict.fromkeys([*(values or [ANY]), *before]))[:MOST_VALUES]

    # What programs are told

    def _programs(self, command: ShellCommand) -> None:
        words = command.words
        names = [_program(word) for word in words]
        if not names or names[0] in ("echo", "printf"):
            return
        if "tee" in names[:5] and (command.piped or names[0] == "tee"):
            self._tee(words[names.index("tee") + 1 :])
            return
        begin = 0
        if "srun" in names:
            begin = self._srun(words, names.index("srun") + 1)
        launcher = next((place for place, name in enumerate(names) if place >= begin and name in _LAUNCHERS), None)
        if launcher is not None or "torch.distributed.run" in names:
            self._launcher(words[launcher or 0 :])
        self._log_options(words[begin:])
        self._inner(words, names, command.level)

    def _tee(self, words: Sequence[Word]) -> None:
        append = any(word.plain in ("-a", "--append") or re.fullmatch(r"-[aip]*a[aip]*", word.plain) for word in words)
        for word in words:
            if not word.plain.startswith("-"):
                self._add(word, LogOrigin.REDIRECTION, f"tee{' -a' if append else ''} {word.source}", append=append)

    def _srun(self, words: Sequence[Word], begin: int) -> int:
        """Read the options of srun and return where its program stands."""
        place, mode = begin, ""
        files: list[tuple[Word, str]] = []
        while place < len(words):
            source = words[place].source
            if not source.startswith("-") or source == "--":
                break
            place += 1
            name, equals, _ = source[2:].partition("=") if source.startswith("--") else ("", "", "")
            value: Word | None = None
            if name:
                value = _text_after(words[place - 1], len(name) + 3) if equals else None
                if not equals and name not in _SRUN_PLAIN and place < len(words):
                    value, place = words[place], place + 1
            elif len(source) > 1 and source[1] not in _SRUN_SHORT_PLAIN:
                name = {"o": "output", "e": "error"}.get(source[1], source[1])
                value = _text_after(words[place - 1], 3 if source[2:3] == "=" else 2) if len(source) > 2 else None
                if value is None and place < len(words):
                    value, place = words[place], place + 1
            if name in ("output", "error") and value is not None:
                files.append((value, name))
            mode = value.plain if name == "open-mode" and value is not None else mode
        for word, name in files:
            self._add(word, LogOrigin.STEP, f"srun --{name}={word.source}", append=mode.startswith("a"), step=True)
        return place

    def _launcher(self, words: Sequence[Word]) -> None:
        options = _options(words)
        folder = options.get("log-dir")
        if folder is not None and any(name in options for name in ("redirects", "tee", "r", "t")):
            for stream in ("stdout", "stderr"):
                path = f"/{ANY}/attempt_{ANY}/{LOCAL}/{stream}.log"
                self._add(folder, LogOrigin.OPTION, f"torchrun --log-dir {folder.source}", suffix=path)
        folder = options.get("output-filename")
        if folder is not None:
            for stream in ("stdout", "stderr"):
                self._add(
                    folder, LogOrigin.OPTION, f"mpirun --output-filename {folder.source}", suffix=f"/{ANY}/rank.{RANK}/{stream}"
                )

    def _log_options(self, words: Sequence[Word]) -> None:
        options = _options(words)
        for name in ("log-file", "logfile", "log-path"):
            word = options.get(name)
            if word is not None:
                self._add(word, LogOrigin.OPTION, f"--{name} {word.source}", append=True)

    def _inner(self, words: Sequence[Word], names: Sequence[str], level: int) -> None:
        """Read what a shell is given: the text behind `-c`, or a script of its own."""
        for place, name in enumerate(names):
            following = words[place + 1 :]
            if name in _SHELLS:
                options = [word for word in following[:4] if word.plain.startswith("-")]
                texts = following[len(options) : len(options) + 1]
                if any(re.fullmatch(r"-[a-z]*c[a-z]*", option.plain) for option in options):
                    for command in (command for text in texts for command in commands(text.source, level + 1)):
                        self.take(command)
                else:
                    self._call(texts)
                return
            if name.endswith((".sh", ".bash", ".slurm", ".sbatch")):
                self._call(words[place : place + 1])
                return
            if name in ("source", "."):
                self._call(following[:1])
                return

    def _call(self, words: Sequence[Word]) -> None:
        for word in words:
            path = next((path for value in self.values(word) if (path := self.absolute(value))), "")
            if path and not any(gap in path for gap in GAPS):
                self.called.append(path)

    def _redirected(self, command: ShellCommand, redirection: Redirection) -> None:
        if not redirection.target.source and all(piece.gap for piece in redirection.target.pieces):
            return  # `> >(tee file)`: what it runs is read as a command of its own
        names = [_program(word) for word in command.words]
        program = _program_of(command.words)
        executed = names[:1] == ["exec"]
        if redirection.descriptor not in ("1", "2", "&") and not executed:
            return
        writes_data = self._pipeline_writes_data if command.piped else program in _WRITERS_OF_DATA
        if writes_data or (not program and names and not executed and names[0] != "time"):
            return
        sign = {"1": ">", "2": "2>", "&": "&>"}.get(redirection.descriptor, ">") + (">" if redirection.append else "")
        self._add(redirection.target, LogOrigin.REDIRECTION, f"{sign} {redirection.target.source}", append=redirection.append)

    # From words to paths

    def _add(self, word: Word, origin: LogOrigin, how: str, *, append: bool = False, step: bool = False, suffix: str = "") -> None:
        values = self.values(word)
        for value in values:
            text = (_placed(value, self.around.placeholders) if step else value) + suffix
            if _NO_FILE.fullmatch(text) or (step and text in ("all", "none", "0")):
                self.nowhere += [how] if text.endswith("null") or text == "none" else []
                continue
            if _DATA.search(text) and not step:
                continue
            path = self.absolute(text)
            if path:
                self.patterns.append(LogPattern(path, origin, how, append))
            else:
                self.problems.append(f"`{how}` names a file that only the run knows")

    def values(self, word: Word) -> list[str]:
        """Return what a word may be, the likeliest first; gaps stand for what is not known."""
        values = [""]
        for place, piece in enumerate(word.pieces):
            options = self._of_piece(piece, first=place == 0)
            values = [prefix + option for prefix in values for option in options][:MOST_VALUES]
        return values

    def _of_piece(self, piece: WordPiece, *, first: bool) -> list[str]:
        if piece.gap:
            return [ANY]
        if not piece.name:
            text = piece.text
            if first and not piece.quoted and (text == "~" or text.startswith("~/")):
                home = self.around.variables.get("HOME", ANY)
                return [home + text[1:]]
            return [text]
        if piece.name == "PWD" and self._folders and self._folders[-1]:
            return [self._folders[-1]]
        if piece.name in self._assigned:
            return self._assigned[piece.name]
        if piece.name.isdecimal() and 0 < int(piece.name) <= len(self.around.arguments):
            return [self.around.arguments[int(piece.name) - 1]]
        value = self.around.variables.get(piece.name)
        if value is not None and (value or piece.default is None):
            return [value]
        if piece.default is not None:
            inner = next(iter(commands(f'"{piece.default}"')), None)
            return self.values(inner.words[0]) if inner is not None and inner.words else [piece.default]
        return [ANY]

    def absolute(self, text: str) -> str:
        """Return an absolute path; empty where it cannot be told in which folder the file lies, or what its name is."""
        text = re.sub(rf"{ANY}+", ANY, text.strip())
        if not text or "\n" in text or "\x00" in text or text.startswith(ANY) or len(text) > 4096:
            return ""
        if not text.startswith("/"):
            folder = self._folders[-1] if self._folders else self.around.work_dir
            if not folder:
                return ""
            text = f"{folder}/{text}"
        path = posixpath.normpath(text)
        name = posixpath.basename(path)
        return path if name and name != ANY and not path.startswith("/dev/") else ""


_WRAPPERS = KEYWORDS | frozenset("nohup exec command nice stdbuf env".split())


def _program(word: Word) -> str:
    return posixpath.basename(word.source)


def _program_of(words: Sequence[Word]) -> str:
    """Return the program of a command behind `time`, `env A=1` and the like; empty where there is none."""
    names = (_program(word) for word in words)
    return next((name for name in names if name not in _WRAPPERS and "=" not in name), "")


def _text_after(word: Word, count: int) -> Word:
    """Return a word without its first characters, which are text."""
    pieces = list(word.pieces)
    chars_left = count
    while pieces and chars_left > 0 and not pieces[0].name and not pieces[0].gap:
        cut_chars = min(chars_left, len(pieces[0].text))
        pieces[0] = pieces[0]._replace(text=pieces[0].text[cut_chars:])
        chars_left -= cut_chars
        if not pieces[0].text:
            del pieces[0]
    return Word(tuple(pieces), word.source[count:])


def _options(words: Sequence[Word]) -> dict[str, Word]:
    """Return the options of a command line by name, `_` as `-`; an option without a value has the next word, whatever that is."""
    options: dict[str, Word] = {}
    for place, word in enumerate(words):
        match = re.match(r"--?([A-Za-z][\w-]*)(=)?", word.source)
        if match is not None and word.pieces and word.pieces[0].text.startswith("-"):
            value = _text_after(word, match.end()) if match[2] else words[place + 1] if place + 1 < len(words) else None
            if value is not None:
                options.setdefault(match[1].replace("_", "-"), value)
    return options


def _placed(text: str, placeholders: Mapping[str, str]) -> str:
    """Return a file pattern of Slurm with its placeholders filled in; one that is not known becomes a gap."""
    if "\\" in text:
        return text.replace("\\", "")

    def fill(match: re.Match[str]) -> str:
        width, letter = match[1], match[2]
        if letter == "%":
            return "%"
        value = placeholders.get(letter, ANY)
        padded = width and value.isdecimal() and letter in "jJAabnst"  # of names Slurm passes over a width, and pads to 10 at most
        return value.zfill(min(int(width), 10)) if padded else value

    return _PLACEHOLDER.sub(fill, text)


class PartMatcher(NamedTuple):
    """Matches names of files against one part of a path with gaps, in time linear in the name: users write both."""

    pattern: LinearPattern

    def values(self, name: str) -> dict[str, str] | None:
        """Return what stands in the gaps `rank`, `node`, `local`; None when the name does not match, or one gap has two values."""
        match = self.pattern.fullmatch(name.encode("utf-8", "replace"))
        if match is None:
            return None
        values: dict[str, str] = {}
        for group, raw in match.groupdict().items():
            gap, text = group.decode().partition("_")[0], (raw or b"").decode("utf-8", "replace")
            if values.setdefault(gap, text) != text:
                return None
        return values


def matcher(path: str) -> PartMatcher:
    """Return what matches one part of a path with gaps."""
    forms = {RANK: r"[0-9]{1,7}", LOCAL: r"[0-9]{1,7}", NODE: r"[A-Za-z0-9][\w.-]*?"}
    parts: list[str] = []
    for place, character in enumerate(path.encode("utf-8", "replace").decode()):
        if character == ANY:
            parts.append(r"[^/]*?")
        elif character in forms:
            parts.append(f"(?P<{GAPS[character][1:-1]}_{place}>{forms[character]})")
        else:
            parts.append(re.escape(character))
    return PartMatcher(linear_pattern("".join(parts)))


def has_gap(text: str) -> bool:
    """Tell whether a path, or a part of one, has a gap."""
    return any(gap in text for gap in GAPS)


def known_variables(values: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield variables that every job of Slurm has and whose value differs from process to process, as gaps, behind those given."""
    yield from values
    for name in ("SLURM_PROCID", "RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"):
        yield name, RANK
    for name in ("SLURM_LOCALID", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"):
        yield name, LOCAL
    for name in ("SLURMD_NODENAME", "HOSTNAME", "HOST"):
        yield name, NODE
