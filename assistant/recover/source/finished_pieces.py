"""Whether a script proves that it passes over finished pieces of its work, so that it may run again as it is. Pure.

Proven is a piece only where a half-written one cannot be taken for a finished one: what the test looks for is renamed into its
place, or stamped behind work that has succeeded. All else that the script does must leave the same behind when it is done twice.
Whatever is not followed proves nothing, and `PieceWork.doubt` names its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import JobProgram
from assistant.recover.shell.tree import (
    Link,
    Statement,
    TreeCommand,
    TreeKind,
    Unread,
    all_commands,
    fill_in,
    is_assigned,
    launched_words,
    plain_word,
    script_tree,
)
from assistant.recover.source.piece_programs import TRAINS, pieces_of_program, repeat_doubt
from assistant.recover.source.reruns import is_log

__all__ = ["PieceWork", "pieces_of_script"]

SPEAKS = frozenset(
    "echo printf date sleep seq true : hostname nproc id pwd test [ [[ exit return continue break wait ulimit umask export local "
    "read shift set module ls wc cat grep nvidia-smi df du uname cd pushd popd mkdir source . declare readonly unset shopt".split()
)
"""Commands that leave nothing behind but what they are redirected to, and folders."""
STAMPS = frozenset(("echo", "printf", "date", ":", "true", "touch", "hostname"))
"""Commands whose redirected output is a mark and no result."""
TRANSFORMS = frozenset(
    "ffmpeg sox gzip gunzip zstd unzstd xz bzip2 convert magick awk sort cut tr head tail jq cp tar unzip wget curl sed paste uniq "
    "comm join split md5sum sha256sum samtools bwa pigz tee ln python python3".split()
)
"""Commands that write the same again when they are given the same again; some of their options are looked at."""
LEAVES = frozenset(("continue", "exit", "return", "break"))
CONTINUES = frozenset(("continue",))
TESTS = frozenset(("-e", "-f", "-s", "-r"))
PARTIAL = re.compile(r"(?:^|[/._-])(?:part|partial|tmp|temp|incomplete)(?:$|[/._-])|\$TMPDIR|\$SLURM_TMPDIR", re.IGNORECASE)
"""Names of what is not finished yet."""
MARK = re.compile(r"(?:^|[/._-])(?:done|ok|finished|complete[d]?|success|stamp|fertig|ready)(?:$|[/._-])", re.IGNORECASE)
"""Names of files that only say that something is finished."""
HARM = {
    "sed": re.compile(r"^(?:-[a-zA-Z]*i|--in-place)"),
    "tee": re.compile(r"^(?:-a|--append)"),
    "tar": re.compile(r"^(?:-?[a-zA-Z]*[ru][a-zA-Z]*f|-[ru]\b|--append|--update|--delete|--remove-files)"),
    "curl": re.compile(r"^(?:-X|--request|-d|--data|-F|--form|-T|--upload)"),
    "wget": re.compile(r"^--(?:post|method|body)"),
    "awk": re.compile(r"system\(|>>|print[^|]*>"),
}
"""Words of these commands by which they change what is there already, or something elsewhere."""
MOST_FUNCTIONS = 8
"""Functions that call one another."""
MOST_STEPS = 20_000
"""Commands that are looked at, with those of functions at each call."""


class PieceWork(NamedTuple):
    """What a script proves of the pieces of its work."""

    guard_place: str = ""
    """Where it passes over finished ones: `line 15 of its script`, `cut.py:9`; empty where it passes over none."""
    doubt: str = ""
    """What keeps it from being proven, with the line; empty where it is."""

    @property
    def proven(self) -> bool:
        """Whether a rerun is proven to do only what is missing."""
        return bool(self.guard_place) and not self.doubt


class _Doubt(Exception):
    """Why a script is not proven."""


def pieces_of_script(script: str, programs: Sequence[JobProgram], read: Callable[[str], str | None]) -> PieceWork:
    """Return what a batch script and its programs prove of the pieces of their work.

    Args:
        script: Its text.
        programs: What it starts, from `programs_of`.
        read: Returns the text of a file that it sources, by the path as written; None where it cannot be read.
    """
    if any(call.method in TRAINS for program in programs for call in program.calls):
        return PieceWork()  # its rounds build on one another, whatever it passes over
    if unread := next((program.unread_behind for program in programs if program.unread_behind), ""):
        return PieceWork(doubt=unread)
    if script.startswith("#!") and "python" in script.partition("\n")[0]:
        work = pieces_of_program(programs[0]) if len(programs) == 1 else None
        return PieceWork(work.guard_place, work.doubt or repeat_doubt(programs[0])) if work is not None else PieceWork()
    try:
        reader = _Script(script_tree(script), programs, read)
    except Unread as error:
        return PieceWork(doubt=f"line {error.line} of its script: {error.why}")
    try:
        reader.check(reader.statements, frozenset())
    except _Doubt as error:
        return PieceWork(reader.guard_place or reader.guess(), str(error))
    return PieceWork(reader.guard_place)


_READS = frozenset("cut grep head sort tail tr wc basename dirname realpath find squeue stat mktemp".split()) | SPEAKS
_CHANGES = re.compile(r"[;|&<>]|\s-(?:delete|exec|ok|i)\b|\b(?:rm|mv|cp|tee|curl|wget|touch|sed|awk|python\d?(?:\.\d+)?)\b")
"""Within a command substitution: more than one reading command."""


class _Script:
    """A script whose commands are gone through in order; `guard_place` is filled in on the way."""

    def __init__(self, statements: list[Statement], programs: Sequence[JobProgram], read: Callable[[str], str | None]) -> None:
        fill_in(statements)
        self.statements, self.programs = statements, programs
        self.functions: dict[str, list[Statement]] = {}
        self.guard_place = ""
        self.changing = ""
        self.inside = self.steps = 0
        self._sources(statements, read)
        for command in all_commands(statements):
            if command.kind == TreeKind.FUNCTION:
                self.functions.setdefault(command.words[0], command.body)
        words = [command.words for command in all_commands(statements) if command.words[:1] == ["set"]]
        options = {letter for line in words for word in line[1:] if word.startswith("-") for letter in word[1:]}
        taken_back = any(word.startswith("+") for line in words for word in line[1:])
        self.stops = ("e" in options or any("errexit" in line for line in words)) and not taken_back
        self.pipes = any("pipefail" in line for line in words) and not taken_back

    def _sources(self, statements: list[Statement], read: Callable[[str], str | None]) -> None:
        for command in all_commands(statements):
            if command.words[:1] not in (["source"], ["."]) or len(command.words) < 2:
                continue
            if command.words[1].rstrip("\"'").endswith("bin/activate"):
                continue
            text = read(plain_word(command.words[1]))
            if text is None:
                raise Unread(command.line, f"{command.words[1]} cannot be read")
            for statement in script_tree(text):
                inner = [part for link in statement.links for part in link.commands]
                if any(part.kind != TreeKind.FUNCTION for part in inner):
                    raise Unread(command.line, f"{command.words[1]} does more than to define functions")
                self.functions |= {part.words[0]: part.body for part in inner}

    def guess(self) -> str:
        """Return where a loop seems to pass over pieces, also where what stands before it is not followed; empty for none."""
        for command in all_commands(self.statements):
            if command.kind == TreeKind.LOOP:
                guard = _guard(command)
                if guard is not None:
                    return f"line {guard.line} of its script"
        return ""

    def check(self, statements: Sequence[Statement], own: frozenset[str]) -> None:
        """Go through statements.

        Args:
            statements: In order.
            own: Files that the same round has written, as they are named: those it may remove and rename.

        Raises:
            _Doubt: Something that they do is not proven to be harmless when it is done again.
        """
        written = set(own)
        for statement in statements:
            for link in statement.links:
                for command in link.commands:
                    self._check(command, written)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise _Doubt("its script is too long to be followed")

    def _check(self, command: TreeCommand, written: set[str]) -> None:
        self._step()
        if command.kind == TreeKind.FUNCTION:
            return
        self._redirects(command, written)
        if command.kind == TreeKind.SIMPLE:
            self._simple(command, written)
            return
        guard = _guard(command) if command.kind == TreeKind.LOOP else None
        self.check(command.test, frozenset(written))
        if guard is not None:
            self.guard_place = self.guard_place or f"line {guard.line} of its script"
            self._prove(guard)
        if guard is not None and command.test:
            inner = {word for test in command.test for link in test.links for part in link.commands for word in part.words[:1]}
            if not inner <= {"read", "[", "[[", "test"}:
                raise _Doubt(f"line {command.line} of its script: what its loop goes through is not followed")
        self.check(command.body, frozenset(written))
        self.check(command.alternative, frozenset(written))
        for inner_command in all_commands(command.body):
            written |= {plain_word(redirect.target) for redirect in inner_command.redirects}

    def _redirects(self, command: TreeCommand, written: set[str]) -> None:
        for redirect in command.redirects:
            target = plain_word(redirect.target)
            appends = redirect.operator in (">>", "&>>")
            if appends and not is_log(target) and target not in written:
                raise _Doubt(f"line {command.line} of its script appends to {target}, and a rerun would do so a second time")
            if redirect.operator in (">", ">|", "&>"):
                written.add(target)

    def _simple(self, command: TreeCommand, written: set[str]) -> None:
        words = [word for place, word in enumerate(command.words) if not is_assigned(command.words[: place + 1])]
        for word in command.words:
            for inner in re.findall(r"(?:\$\(|`)\s*([\w./-]+)", word):
                if inner not in (SPEAKS | {"cut", "grep", "head", "sort", "tail", "tr", "wc"}) - {"curl", "wget"} | {
                    "basename",
                    "dirname",
                    "realpath",
                    "find",
                    "squeue",
                    "stat",
                    "mktemp",
                }:
                    raise _Doubt(f"line {command.line} of its script: what `{inner}` does there is not followed")
            if ("$(" in word.replace("$((", "") or "`" in word) and _CHANGES.search(word):
                raise _Doubt(f"line {command.line} of its script: what is done within `{word[:60]}` is not followed")
        words = launched_words(words)
        if not words:
            return
        if any(word.startswith("--open-mode=a") for word in command.words):
            raise _Doubt(
                f"line {command.line} of its script appends to the output of its step, and a rerun would do so a second time"
            )
        name = plain_word(words[0]).rpartition("/")[2]
        if name in self.functions:
            self.inside += 1
            if self.inside <= MOST_FUNCTIONS:
                self.check(self.functions[name], frozenset(written))
            self.inside -= 1
        elif name == "rm":
            self._removes(command, words[1:], written)
        elif name == "mv":
            sources = [plain_word(word) for word in words[1:] if not word.startswith("-")][:-1]
            if not sources or not all(source in written or PARTIAL.search(source) for source in sources):
                raise _Doubt(f"line {command.line} of its script moves away {' '.join(sources)}, which it has not written before")
        elif name.startswith("python"):
            self._python(command, words)
        elif name in TRANSFORMS or name == "touch":
            harm = HARM.get(name)
            bad = next((word for word in words[1:] if harm is not None and harm.search(plain_word(word))), "")
            if bad and not (name == "tee" and all(is_log(plain_word(word)) for word in words[1:] if not word.startswith("-"))):
                raise _Doubt(f"line {command.line} of its script: `{name} {bad}` changes what is there already")
        elif name not in SPEAKS:
            raise _Doubt(f"line {command.line} of its script: what a second `{name}` does is not known")

    def _removes(self, command: TreeCommand, words: Sequence[str], written: set[str]) -> None:
        names = [plain_word(word) for word in words if not word.startswith("-")]
        if not all((name in written or PARTIAL.search(name)) and ".." not in name for name in names):
            raise _Doubt(f"line {command.line} of its script removes {' '.join(names)}, which it has not written before")

    def _python(self, command: TreeCommand, words: Sequence[str]) -> None:
        file = next((plain_word(word) for word in words[1:] if word.endswith((".py", '.py"', ".py'"))), "")
        name = PurePosixPath(file).name
        program = next((part for part in self.programs if part.name == name), None)
        if not file or program is None:
            raise _Doubt(f"line {command.line} of its script: the program that it starts cannot be told")
        work = pieces_of_program(program)
        self.guard_place = self.guard_place or work.guard_place
        if doubt := work.doubt or repeat_doubt(program):
            raise _Doubt(doubt)

    def _prove(self, guard: _Guard) -> None:
        """Make sure that a half-written piece is never taken for a finished one.

        Raises:
            _Doubt: It may be.
        """
        is_marked = worked = False
        bodies = [statement for body in self.functions.values() for statement in body]
        if any(_mentions(link, guard.piece) for statement in bodies for link in statement.links):
            raise _Doubt(f"line {guard.line} of its script: a function writes {guard.piece}, and when is not followed")
        for command in all_commands(guard.work):
            assigned = {word.partition("=")[0].rstrip("+") for word in command.words if is_assigned([word])} | set(
                command.words[:1] if command.kind == TreeKind.LOOP else command.words[1:] if command.words[:1] == ["read"] else ()
            )
            if _uses(guard.piece, assigned):
                raise _Doubt(f"line {command.line} of its script changes what {guard.piece} means within the round")
        for statement in guard.work:
            creates = [place for place, link in enumerate(statement.links) if _mentions(link, guard.piece)]
            if not creates:
                if is_marked and any(not self._speaks(command) for link in statement.links for command in link.commands):
                    raise _Doubt(
                        f"line {statement.line} of its script works on behind {guard.piece}, by which a piece is passed over"
                    )
                worked = self._works(statement) or worked
                continue
            place = creates[-1]
            links = statement.links[: place + 1]
            if is_marked or len(creates) > 1 or any(link.operator == "||" or link.negated for link in links):
                raise _Doubt(f"line {statement.line} of its script: when {guard.piece} is made is not proven")
            for link in links[:-1]:
                self._link_fails(link, stops=False)
                worked = worked or any(not self._speaks(command) for command in link.commands)
            self._makes(links[-1], guard, worked=worked, line=statement.line, leads=bool(links[:-1]))
            for link in statement.links[place + 1 :]:
                names = [command.words[:1] for command in link.commands]
                if any(name and name[0] not in SPEAKS | LEAVES | {"rm"} and name[0] not in self.functions for name in names):
                    raise _Doubt(f"line {statement.line} of its script works on behind {guard.piece}")
            is_marked = True
        if not is_marked:
            raise _Doubt(f"line {guard.line} of its script looks for {guard.piece}, and where that is written is not told")

    def _works(self, statement: Statement) -> bool:
        """Return whether a statement before the mark does some work; one that works must end the round when it fails."""
        self._fails_with([statement], stops=self.stops, last_counts=False, leaves=LEAVES)
        return any(not self._speaks(command) for link in statement.links for command in link.commands)

    def _fails_with(self, statements: Sequence[Statement], *, stops: bool, last_counts: bool, leaves: frozenset[str]) -> None:
        """Make sure that commands fail as a whole, or leave the round, when one that works fails.

        Args:
            statements: In order.
            stops: Whether `set -e` holds here: not in what is tested or stands before `&&` and `||`.
            last_counts: Whether the last one gives the status of all.
            leaves: Commands that leave the round here.
        """
        self._step()
        for place, statement in enumerate(statements):
            working = [any(not self._speaks(command) for command in link.commands) for link in statement.links]
            if not any(working):
                continue
            last = statement.links[-1]
            ends = last.operator == "||" and _leaves(last, leaves)
            links = statement.links[: len(statement.links) - ends]
            if any(link.operator == "||" or link.negated for link in links):
                raise _Doubt(
                    f"line {statement.line} of its script: a failure there is passed over, and the piece marked as finished"
                )
            stopped = stops and not any(working[: len(links) - 1])
            if not ends and not stopped and not (last_counts and place == len(statements) - 1):
                raise _Doubt(f"line {statement.line} of its script may fail, and the piece is marked as finished all the same")
            for number, link in enumerate(links):
                self._link_fails(link, stops=stops and not ends and number == len(links) - 1)

    def _link_fails(self, link: Link, *, stops: bool) -> None:
        """Make sure that a pipeline fails when a part of it does, with all that its functions, groups and loops run."""
        if any(not self._speaks(command) for command in link.commands[:-1]) and not self.pipes:
            raise _Doubt(f"line {link.commands[0].line} of its script: a part of that pipeline may fail unseen (no pipefail)")
        for command in link.commands:
            if self._speaks(command):
                continue
            tested = [part for part in all_commands(command.test) if not self._speaks(part)]
            if tested:
                raise _Doubt(f"line {tested[0].line} of its script may fail within a test, and the piece be marked as finished")
            name = plain_word(command.words[0]).rpartition("/")[2] if command.kind == TreeKind.SIMPLE and command.words else ""
            bodies = [self.functions[name]] if name in self.functions else [command.body, command.alternative]
            for body in bodies if self.inside < MOST_FUNCTIONS else ():
                self.inside += 1
                in_loop = command.kind == TreeKind.LOOP
                self._fails_with(body, stops=stops, last_counts=not in_loop, leaves=frozenset(("exit", "return")))
                self.inside -= 1

    def _makes(self, link: Link, guard: _Guard, *, worked: bool, line: int, leads: bool) -> None:
        """Make sure that a command makes the mark of a piece at once, or behind its work."""
        command = link.commands[-1]
        words = [plain_word(word) for word in launched_words(command.words)]
        name = words[0].rpartition("/")[2] if words else ""
        alone = len(link.commands) == 1 and command.kind == TreeKind.SIMPLE
        if alone and name == "mv" and words[-1] == guard.piece:
            source = [word for word in words[1:-1] if not word.startswith("-")]
            if len(source) == 1 and PurePosixPath(source[0]).parent == PurePosixPath(guard.piece).parent:
                return
            raise _Doubt(
                f"line {line} of its script moves {' '.join(source)} to {guard.piece} from another folder, which may copy it"
            )
        targets = [plain_word(redirect.target) for redirect in command.redirects if redirect.operator in (">", ">|")]
        folder, _, last = guard.piece.rpartition("/")
        is_mark = MARK.search(last) is not None or (MARK.search(folder) is not None and "." not in last)
        stamps = (name == "touch" and guard.piece in words[1:] and is_mark) or (name in STAMPS and guard.piece in targets)
        if alone and stamps and (worked or leads):
            return
        raise _Doubt(f"line {line} of its script writes {guard.piece} itself: a half-written one would be taken for finished")

    def _speaks(self, command: TreeCommand) -> bool:
        """Tell whether a command does no work of a piece: it speaks, assigns, waits, or makes a folder."""
        self._step()
        if command.kind == TreeKind.FUNCTION:
            return True
        if command.redirects and any(
            redirect.operator in (">", ">|", "&>") and not is_log(plain_word(redirect.target)) for redirect in command.redirects
        ):
            return False
        if command.kind != TreeKind.SIMPLE:
            return all(self._speaks(part) for part in all_commands([*command.test, *command.body, *command.alternative]))
        words = launched_words([word for place, word in enumerate(command.words) if not is_assigned(command.words[: place + 1])])
        if not words:
            return True
        name = plain_word(words[0]).rpartition("/")[2]
        if name in self.functions and self.inside < MOST_FUNCTIONS:
            self.inside += 1
            try:
                return all(self._speaks(part) for part in all_commands(self.functions[name]))
            finally:
                self.inside -= 1
        return name in SPEAKS or (name == "rm" and all(PARTIAL.search(word) for word in words[1:] if not word.startswith("-")))


class _Guard(NamedTuple):
    """A test in a loop that passes over a piece that is there."""

    piece: str
    """What it looks for, as written, without quotes."""
    line: int
    work: list[Statement]
    """What is done for a piece that is not there."""


def _guard(loop: TreeCommand) -> _Guard | None:
    """Return the test by which a loop passes over pieces that are there; None where it has none."""
    own = set(loop.words[:1])
    for test in loop.test:
        own |= {word for link in test.links for part in link.commands if part.words[:1] == ["read"] for word in part.words[1:]}
    for place, statement in enumerate(loop.body):
        first = statement.links[0]
        command = first.commands[0]
        for word in command.words if command.kind == TreeKind.SIMPLE else ():
            name, _, text = word.partition("=")
            if is_assigned([word]) and _uses(text, own):
                own.add(name)  # one that is assigned from a command is not filled in
        if command.kind == TreeKind.IF and len(statement.links) == 1:
            piece, present = _test(command.test)
            if not piece or not _uses(piece, own):
                continue
            if present and not command.alternative and command.body and _leaves(command.body[-1].links[-1], CONTINUES):
                return _Guard(piece, statement.line, loop.body[place + 1 :])
            if not present and not command.alternative:
                return _Guard(piece, statement.line, [*command.body, *loop.body[place + 1 :]])
        elif len(statement.links) == 2 and len(first.commands) == 1:
            piece, present = _test([Statement([first], statement.line)])
            last = statement.links[1]
            if not piece or not _uses(piece, own):
                continue
            if present and last.operator == "&&" and _leaves(last, CONTINUES):
                return _Guard(piece, statement.line, loop.body[place + 1 :])
            if (present and last.operator == "||") or (not present and last.operator == "&&"):
                group = last.commands[0]
                inner = group.body if group.kind == TreeKind.GROUP and len(last.commands) == 1 else None
                work = inner if inner is not None else [Statement([last._replace(operator="")], statement.line)]
                return _Guard(piece, statement.line, [*work, *loop.body[place + 1 :]])
    return None


def _test(statements: Sequence[Statement]) -> tuple[str, bool]:
    """Return the file that a test looks for, and whether it holds where that is there; empty for any other test."""
    if len(statements) != 1 or len(statements[0].links) != 1 or len(statements[0].links[0].commands) != 1:
        return "", False
    link = statements[0].links[0]
    words = link.commands[0].words
    if words[:1] not in (["["], ["[["], ["test"]):
        return "", False
    inner = [word for word in words[1:] if word not in ("]", "]]")]
    present = not link.negated
    if inner[:1] == ["!"]:
        inner, present = inner[1:], not present
    return (plain_word(inner[1]), present) if len(inner) == 2 and inner[0] in TESTS else ("", False)


def _leaves(link: Link, leaves: frozenset[str]) -> bool:
    """Tell whether a pipeline surely leaves by one of some commands; one that says 0 counts for the round itself alone."""
    if len(link.commands) != 1:
        return False
    command = link.commands[0]
    if command.kind == TreeKind.GROUP:
        return bool(command.body) and len(command.body[-1].links) == 1 and _leaves(command.body[-1].links[0], leaves)
    well = command.words[1:] == ["0"] and leaves != LEAVES
    return command.kind == TreeKind.SIMPLE and command.words[:1] != [] and command.words[0] in leaves and not well


def _mentions(link: Link, piece: str) -> bool:
    """Tell whether a pipeline names what a test looks for: the same file, in any word or redirection."""
    for command in all_commands([Statement([link], 0)]):
        if any(plain_word(redirect.target) == piece for redirect in command.redirects if redirect.operator != "<"):
            return True
        words = [plain_word(word) for word in launched_words(command.words)]
        if (
            command.kind == TreeKind.SIMPLE
            and words[:1] not in (["echo"], ["printf"], ["rm"], ["["], ["test"])
            and piece in words[1:]
        ):
            return True
        if any(word.endswith(f"={piece}") for word in words):
            return True
    return False


def _uses(text: str, names: set[str]) -> bool:
    return any(re.search(rf"\$\{{?{re.escape(name)}\b", text) for name in names)
