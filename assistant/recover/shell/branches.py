"""Tests of a shell script: which commands a run comes to, by `if`, `case`, `&&` and `||`. Pure.

Tests of files are answered by the caller, those of texts by what the variables hold. Where a command before it may create or delete
the file, a test is not answered: `mkdir ckpt` makes no `ckpt/last.pt`, and `python prepare.py` whose text names neither the file
nor its folder makes none either; a program that is given a folder above the file, or cannot be read, may.
"""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from assistant.recover.shell.folders import UNRESOLVED, name_matches

if TYPE_CHECKING:
    from assistant.recover.batch_script import Launch

FileTest = Callable[[str, str], bool | None]
"""Tells whether `[ -f PATH ]` holds: from the letter of the test and the absolute path; None where that cannot be told."""
FILE_TEST = re.compile(r"-[defhLrs]")
OTHER_TEXT = re.compile(r"`|\$(?![\d#@*]|\{(?:#|[\d@*]+)(?::?-[\w./-]*)?\})")
"""What puts more into a word than it shows, besides the arguments of the script."""
TESTS = frozenset(("[", "[[", "]", "]]", "test"))


class Branches:
    """Follows `if`, `elif`, `else` and `fi` and tells whether a run would come to a command; nested ones count."""

    def __init__(self, exists: FileTest | None, resolve: Callable[[str], str], unanswered: bool | None = None) -> None:
        self.exists, self.resolve, self.unanswered = exists, resolve, unanswered
        self.stack: list[_Branch] = []
        self.list = _List()
        self.repeating = False
        """Whether a loop is open whose rounds are not told apart: an earlier one may have changed any variable."""

    @property
    def taken(self) -> bool:
        """Whether what stands here is run, as far as that can be told."""
        return not self.list.passed_over and all(branch.taken for branch in self.stack)

    @property
    def sure(self) -> bool:
        """Whether what stands here is run in any case: under no test that cannot be told."""
        return not self.list.passed_over and all(branch.sure for branch in self.stack)

    def certain(self, *, after_operator: bool) -> bool:
        """Tell whether a run surely comes to the next command: each test before it was answered."""
        return self.sure and (not after_operator or self.list.status is not None)

    @property
    def in_subshell(self) -> bool:
        """Whether a shell of its own runs what stands here."""
        return any(branch.group == "(" for branch in self.stack)

    @property
    def guarded(self) -> bool:
        """Whether a test of files decides whether what stands here is run, also where nobody answers it."""
        return self.list.guarded or any(branch.guarded for branch in self.stack)

    def keyword(self, word: str, *, after_operator: bool = False) -> None:
        """Note a keyword at the beginning of a command.

        Args:
            word: The keyword.
            after_operator: Whether `&&` or `||` stands before it.
        """
        if word == "esac":
            if self.in_case:
                self.stack.pop()
                self.list = _List()
        elif word == "if":
            self.stack.append(_Branch())
        elif word == "{":
            self._open("{", after_operator=after_operator)
        elif word == "}":
            self._close("{")
        elif not self.stack or self.stack[-1].group:
            return
        elif word == "fi":
            self.stack.pop()
        elif word == "then":
            self.stack[-1].then()
        elif word in ("elif", "else"):
            self.stack[-1].otherwise(condition=word == "elif")

    @property
    def in_case(self) -> bool:
        """Whether a `case` is the innermost that is open."""
        return bool(self.stack) and self.stack[-1].group == "case"

    def case(self, text: str) -> None:
        """Note the head of a `case` over a text; with UNRESOLVED in it each of its branches may be run."""
        self.stack.append(_Branch(asking=False, taken=False, group="case", text=UNRESOLVED if self.repeating else text))

    def label(self, patterns: Sequence[str] | None) -> None:
        """Note the patterns of a branch of a `case`; None where they cannot be read."""
        branch = self.stack[-1]
        answers = [self.unanswered] if patterns is None else [self._is_label(branch.text, pattern) for pattern in patterns]
        answer = True if True in answers else None if None in answers else False
        branch.taken = not branch.over and answer is not False
        branch.sure = branch.taken and branch.decided and answer is True
        branch.over = branch.over or (answer is True and branch.decided)
        branch.decided = branch.decided and answer is not None
        self.list = _List()

    def subshell(self, *, opens: bool, after_operator: bool) -> bool:
        """Note a bracket that opens or closes a group of commands, and tell whether it does: one in a `case` does not."""
        if opens:
            self._open("(", after_operator=after_operator)
            return True
        return self._close("(")

    def _open(self, group: str, *, after_operator: bool) -> None:
        outer = self.list
        sure = not after_operator or outer.status is not None
        self.stack.append(
            _Branch(asking=False, taken=not outer.passed_over, sure=sure, guarded=outer.guarded, group=group, outer=outer)
        )
        self.list = _List()

    def _close(self, group: str) -> bool:
        closes = bool(self.stack) and self.stack[-1].group == group
        if closes:
            outer = self.stack.pop().outer or _List()
            self.list = _List(outer.status if outer.passed_over else None, outer.passed_over, outer.guarded, closed=True)
        return closes

    def command(self, words: list[str], joint: str = "", *, texts_known: bool = False) -> bool:
        """Note a whole command, and tell whether a run comes to it; one between `if` and `then` is a condition.

        Args:
            words: Its own.
            joint: The operator before it.
            texts_known: Whether its words hold nothing but what stands there and arguments of the script: empty ones are empty.
        """
        branch_taken = self.taken
        plain = [word for word in words if word not in _WORDS]
        asks = len(plain) > 1 and any(FILE_TEST.fullmatch(word) for word in plain) and ("[" in plain[0] or plain[0] == "test")
        answer = self._holds(plain, texts_known=texts_known) if joint not in ("|", "|&") else None
        if self.stack and self.stack[-1].asking:
            self.stack[-1].guarded |= asks
            tests = self.stack[-1].tests
            if tests and joint in ("&&", "||"):
                tests[-1] = _both(tests[-1], answer, decides=joint == "||")
            else:
                tests.append(answer)
        if not self.list.passed_over and not self.list.closed:
            joined = joint in ("&&", "||")
            self.list.status = _both(self.list.status, answer, decides=joint == "||") if joined else answer
        self.list.asks, self.list.closed = asks, False
        return branch_taken

    def follows(self, operator: str) -> None:
        """Note the operator behind a command: it decides whether a run comes to the next one."""
        if operator in ("&&", "||"):
            self.list.passed_over = self.list.status is (operator == "||")
            self.list.guarded |= self.list.asks
            self.list.closed = False
        elif operator not in ("|", "|&"):
            self.list = _List()

    def _is_label(self, text: str, pattern: str) -> bool | None:
        answer = _matches(text, pattern)
        return self.unanswered if answer is None else answer

    def _holds(self, words: list[str], *, texts_known: bool) -> bool | None:
        answer = self._answer(words, texts_known=texts_known or self.exists is not None)
        asks = words[:1] == ["(("] or not TESTS.isdisjoint(words)
        return self.unanswered if answer is None and asks else answer

    def _answer(self, words: list[str], *, texts_known: bool) -> bool | None:
        if words in (["true"], ["false"], [":"]):
            return words != ["false"]
        if words[:1] == ["(("]:
            return None if UNRESOLVED in words[-1] or self.repeating else words[-1] != "0"
        plain = [word for word in words if word not in TESTS]
        expected = True
        while plain and plain[0] == "!":
            plain, expected = plain[1:], not expected
        if words[:1] == ["[["] and texts_known:
            plain = _with_empty_texts(plain)
        unknown = TESTS.isdisjoint(words) or any(UNRESOLVED in word for word in plain)
        if unknown or len(plain) not in (2, 3) or (not texts_known and (len(plain) == 2 or "" in plain)):
            return None
        if len(plain) == 3 or plain[0] in ("-n", "-z"):
            answer = _text_test(plain) if len(words) <= 5 and not self.repeating else None
        else:
            answer = self._file_test(plain)
        return None if answer is None else answer is expected

    def _file_test(self, words: list[str]) -> bool | None:
        path = self.resolve(words[1]) if FILE_TEST.fullmatch(words[0]) else ""
        if self.exists is None or not path.startswith("/") or any(letter in path for letter in "*?["):
            return None
        return self.exists(words[0][1], path)


def _with_empty_texts(words: list[str]) -> list[str]:
    """Return the words of `[[ … ]]` with those that are empty, which a shell does not drop there: `-n $X`, `$X == true`."""
    if words in (["-n"], ["-z"]):
        return [*words, ""]
    return ["", *words] if len(words) == 2 and words[0] in ("=", "==", "!=") else words


def _both(first: bool | None, second: bool | None, *, decides: bool) -> bool | None:
    """Return what two tests come to: with `||` one that holds decides, with `&&` one that does not."""
    if decides in (first, second):
        return decides
    return None if None in (first, second) else not decides


def _text_test(words: list[str]) -> bool | None:
    """Answer `-n TEXT`, `-z TEXT`, `TEXT = TEXT` and `NUMBER -lt NUMBER`; None for any other test."""
    if len(words) == 2:
        return bool(words[1]) is (words[0] == "-n")
    first_operand, sign, right = words
    if sign in NUMBER_TESTS:
        numbers = all(re.fullmatch(r"\s*[-+]?\d{1,18}\s*", word) for word in (first_operand, right))
        return NUMBER_TESTS[sign](int(first_operand), int(right)) if numbers else None
    if sign not in ("=", "==", "!=") or any(letter in right for letter in "*?["):
        return None
    return (first_operand == right) is (sign != "!=")


def _matches(text: str, pattern: str) -> bool | None:
    """Tell whether a text matches a pattern of a `case`; None where that cannot be told."""
    if pattern == "*":
        return True
    if UNRESOLVED in text + pattern or re.search(r"[@!+?*]\(|\[[:.=]", pattern):
        return None
    return name_matches(text, pattern)


NUMBER_TESTS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt, "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip
_WORDS = frozenset(("if", "elif", "then", "else", "do", "while", "until", "{", "time"))


@dataclass(slots=True)
class _List:
    """Commands with `&&` and `||` between them, up to where the reader is."""

    status: bool | None = None
    """How the last command that was run ended; None where that cannot be told."""
    passed_over: bool = False
    """Whether a run does not come to the next command."""
    guarded: bool = False
    """Whether a test of files was among them."""
    asks: bool = False
    """Whether the last command was one."""
    closed: bool = False
    """Whether a group ended right before."""


@dataclass(slots=True)
class _Branch:
    """One `if`, or one group of commands, and where in it the reader is."""

    asking: bool = True
    """Between `if` or `elif` and `then`."""
    tests: list[bool | None] = field(default_factory=list)
    taken: bool = True
    sure: bool = True
    """Whether it is run in any case."""
    over: bool = False
    """Whether a branch before this one was surely taken."""
    decided: bool = True
    """Whether all conditions so far could be told."""
    guarded: bool = False
    """Whether its condition tests files."""
    group: str = ""
    """The bracket that opens it, or `case`; empty for an `if`."""
    text: str = ""
    """Of a `case`: what is compared."""
    outer: _List | None = None
    """Of a group: the list that it stands in."""

    def then(self) -> None:
        answer = self.tests[0] if len(self.tests) == 1 else None
        self.asking = False
        self.taken = not self.over and answer is not False
        self.sure = self.taken and self.decided and answer is True
        self.over = self.over or (answer is True and self.decided)
        self.decided = self.decided and answer is not None

    def otherwise(self, *, condition: bool) -> None:
        self.asking, self.tests, self.taken = condition, [], not self.over
        self.sure = self.taken and self.decided


READERS = frozenset(
    (
        "ls du df stat head tail grep egrep wc file cat less diff cmp readlink realpath sort awk sed md5sum sha256sum "
        "tree chmod chown chgrp echo printf test [ [[ cd pushd popd export source . module ml conda mamba nvidia-smi "
        "ulimit set unset trap wait sleep date hostname which type command true false exit return read mapfile "
        "readarray let (( shift eval squeue scontrol sacct sinfo scancel sbatch git pip pip3 nproc free env uname id "
        "whoami logger wandb shopt umask local declare readonly typeset kill"
    ).split()
)
"""Commands that make and delete no file that a script would test for."""
WRAPPERS = frozenset("srun mpirun mpiexec env timeout nice numactl time nohup exec sudo stdbuf setsid command".split())
QUIET_MODULES = frozenset("pip venv ensurepip compileall site json.tool torch.utils.collect_env".split())
CONFIGS = (".yaml", ".yml", ".toml", ".json")
MOST_LAUNCHES = 400
"""Commands before a test that are looked at; before more of them nothing is known."""

Read = Callable[[str], str | None]


def may_have_changed(launches: Iterable[Launch], path: str, read: Read) -> bool:
    """Tell whether one of the commands before a test may have created or deleted what lies at an absolute path."""
    launch_list = list(launches)
    tested = PurePosixPath(path)
    return len(launch_list) > MOST_LAUNCHES or any(_may_change(launch, tested, read) for launch in launch_list)


def _may_change(launch: Launch, tested: PurePosixPath, read: Read) -> bool:
    if any(target == tested for target in _paths(launch, launch.writes)):
        return True
    words = list(launch.words)
    while words and (PurePosixPath(words[0]).name in WRAPPERS or words[0].startswith("-")):
        words = words[1:]
    name = PurePosixPath(words[0]).name if words else ""
    path_words = [word for word in words[1:] if not word.startswith("-")]
    if launch.program or name.startswith("python"):
        return _program_may(launch, tested, read)
    if name in ("mkdir", "touch", "tee", "truncate"):
        return any(path == tested or tested in path.parents for path in _paths(launch, path_words))
    if name in ("rm", "rmdir", "unlink") or (name == "find" and ("-delete" in words or "-exec" in words)):
        return _covered(launch, path_words, tested)
    if name in ("mv", "cp", "ln", "install"):
        return _copied(
            launch, path_words, tested, moves=name == "mv", whole=any(re.match(r"-\w*[anrRT]", word) for word in words[1:])
        )
    if not name or name in READERS or name == "find" or "=" in name:
        return False
    return _covered(launch, words[1:], tested)


def _paths(launch: Launch, words: Iterable[str]) -> Iterator[PurePosixPath]:
    """Yield the absolute paths that words of a command name, also behind the sign of an option."""
    for word in words:
        for text in {word, word.partition("=")[2]} - {""}:
            path = launch.outside(text)
            if path is not None and UNRESOLVED not in str(path):
                yield PurePosixPath(path)


def _covered(launch: Launch, words: Iterable[str], tested: PurePosixPath) -> bool:
    """Tell whether a word names the tested path, a pattern of it, or a folder above it: not all that the command runs in counts."""
    around = {str(parent) for parent in PurePosixPath(launch.folder).parents} | ({launch.folder} - {str(tested.parent)})
    parents = {str(path_above) for path_above in (tested, *tested.parents)} - around
    paths_written = [str(path) for path in _paths(launch, words)]
    if any(re.search(r"[*?\[]", path) and fnmatch.fnmatchcase(parent, path) for path in paths_written for parent in parents):
        return True
    return not parents.isdisjoint(paths_written)


def _copied(launch: Launch, words: list[str], tested: PurePosixPath, *, moves: bool, whole: bool) -> bool:
    if moves and _covered(launch, words[:-1], tested):
        return True
    targets = list(_paths(launch, words[-1:]))
    bases = [PurePosixPath(word).name for word in words[:-1]]
    for target in targets:
        if target == tested or (whole and target in tested.parents):
            return True
        if target in tested.parents:
            below = tested.relative_to(target).parts[0]
            if any(below == base or (re.search(r"[*?\[]", base) and fnmatch.fnmatchcase(below, base)) for base in bases):
                return True
    return False


def _program_may(launch: Launch, tested: PurePosixPath, read: Read) -> bool:
    if launch.module and launch.program in QUIET_MODULES:
        return False
    if _covered(launch, launch.words, tested):
        return True
    texts = list(_texts(launch, read))
    if any(text is None for text in texts) or not texts:
        return not any(word in ("--version", "-V") for word in launch.words)
    names = [name for name in (tested.name, tested.parent.name) if len(name) > 2]
    return any(name in text for text in texts if text is not None for name in names)


def _texts(launch: Launch, read: Read) -> Iterator[str | None]:
    """Yield the text of a program and of the configurations that it is given; None for one that cannot be read."""
    if launch.stdin:
        yield launch.stdin
    elif "-c" in launch.words:
        yield " ".join(launch.words)
    elif launch.program:
        base = launch.program.replace(".", "/") if launch.module else ""
        names = [f"{base}.py", f"{base}/__main__.py"] if base else [launch.program]
        paths = [path for name in names if (path := launch.outside(name)) is not None]
        yield next((text for path in paths if (text := read(str(path))) is not None), None)
    for word in launch.arguments:
        value = word.partition("=")[2] or word
        if value.endswith(CONFIGS):
            path = launch.outside(value)
            yield read(str(path)) if path is not None else None
