"""The commands of a shell script in the order in which a run comes to them. Nothing is run.

Assignments are made on the way. Functions are kept for where they are called, a `for` over known words is read once for each, and
tests of files in `if`, `&&` and `||`, also before `continue`, `return` and `exit`, are answered where the caller can.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from assistant.recover.shell.branches import OTHER_TEXT, Branches, may_have_changed
from assistant.recover.shell.builtins import DECLARATIONS, arithmetic_command, assign, counted_in, set_scalar
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.shell.words import (
    ASSIGNMENT,
    ENDS,
    LETTERS_A_WORD,
    MOST_WORDS_READ,
    Scanner,
    ShellState,
    here_document,
    joined_path,
    matching_bracket,
)

EMPTIED = "\ue01f"
"""Behind an option whose value is an unquoted variable that is empty."""
MOST_ROUNDS = 32
"""Rounds of a `for` over words that are written out; of a longer one its variable is not known."""
MOST_INSIDE_GROUPS = 400
"""Groups, `if` and `case` within one another."""
MOST_OPEN = 20
"""Groups and loops within one another of which it is told where they end."""
KEYWORDS = frozenset("if then elif else fi for while until do done case esac { } ! time exec nohup function in".split())
LOOPS = frozenset(("for", "case", "select", "function"))
"""Words whose command runs nothing itself."""
MOST_BODY = 100_000
"""Letters of a loop in which is looked for what its rounds count."""
ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(")
FUNCTION = re.compile(r"(?:function[ \t]+([\w:.-]{1,80})[ \t]*(?:\([ \t]*\))?|([\w:.-]{1,80})[ \t]*\([ \t]*\))\s*\{(?=\s)")
"""The head of a function's definition."""
APART = re.compile(r"[ \t]*(?:\d?>[>&]?[ \t]*\S+[ \t]*)*(?:\|(?!\|)|&(?![&>]))")
"""Behind a group or a loop that a shell of its own runs: `} | tee log`, `done &`."""
LOOP_WORD = re.compile(r"[;&\n][ \t]*(do|done)\b")
LOOK = re.compile(r"`|\$\((?!\s*(?:pwd|dirname|basename|realpath|seq)\b|\()")
"""A command whose output changes with what lies in folders."""


@dataclass(slots=True)
class _Loop:
    """A `for` over words that are written out."""

    name: str
    values: list[str]
    """Those of the rounds to come."""
    begins: int
    """Where its body begins in the text."""


@dataclass(frozen=True, slots=True)
class ScriptCommand:
    """One command of a script, expanded."""

    words: list[str]
    stdin: str
    writes: tuple[str, ...]
    guarded: bool
    """Whether a test of files decides if it is run."""
    apart: bool
    """Whether a shell of its own runs it, as a part of a pipeline does: its `exit` and `cd` change nothing here."""
    certain: bool = True
    """Whether a run surely comes to it."""
    given: str | None = None
    """What it reads from a here-string, a file or another command, where that is known."""
    separators: str | None = None
    """`IFS` where it is set for this command alone."""


class CommandReader:
    """Goes through the text of a script command by command; assignments are made on the way."""

    def __init__(self, shell: ShellState, text: str) -> None:
        self.shell, self.text = shell, text
        self.scanner = Scanner(shell, text)
        exists = self._exists if shell.exists is not None else None
        self.branches = Branches(exists, lambda path: host_path(shell, path), shell.unanswered)
        self.given: str | None = None
        self.texts_known = True
        # takes the assignments of branches that are not run
        self.aside = replace(shell, variables={}, arrays={}, tables={}, view=None)
        self.words: list[str] = []
        self.writes: list[str] = []
        self.loops: list[_Loop | None] = []
        self.outer: list[tuple[str, dict[str, str], dict[str, list[str]], dict[str, dict[str, str]]]] = []
        """Folder and variables of the shells around the subshells that are open."""
        self.delimiter, self.joint = "", ""
        """What ends the here-document that is open, and the operator before the command."""
        self.heads: list[int] = []
        """Where the loops that are open begin in the text."""
        self.braces: list[int] = []
        """Where the groups that are open begin in the text."""
        self.apart: dict[int, bool] = {}
        """By where a group or a loop begins: whether a shell of its own runs it."""
        self.unclosed = 0
        """Functions whose end does not come."""
        self.assigned = ""
        """What the command has assigned, as it is written."""
        self.passes = False
        """Whether a test of files has let a run leave the script, the function or the round before."""
        self.left = 0
        """How many loops are open at the one whose round was left; 0 where none was."""

    def _exists(self, letter: str, path: str) -> bool | None:
        """Answer a test of a file as things are now, unless a command before it may change that."""
        if self.shell.exists is None:
            return None
        self.shell.limit.tests -= bool(self.shell.launches)
        if self.shell.limit.tests < 0 or may_have_changed(self.shell.launches, path, self.shell.read):
            return None
        return self.shell.exists(letter, path)

    @property
    def behind(self) -> bool:
        """Whether `&&` or `||` stands before the command: a run may pass over it."""
        return self.joint in ("&&", "||")

    @property
    def state(self) -> ShellState:
        """The shell that takes the assignments of what stands here."""
        return self.shell if self.branches.taken and not self.left else self.aside

    def commands(self) -> Iterator[ScriptCommand]:
        """Yield each command that a run would come to."""
        scanner = self.scanner
        while True:
            scanner.shell = self.state
            scanner.blank()
            self.shell.limit.words -= 1
            if len(self.branches.stack) > MOST_INSIDE_GROUPS:
                self.shell.limit.reached = f"it is read as far as a part that stands inside {MOST_INSIDE_GROUPS} others"
                return
            if self.shell.limit.words < 0:
                self.shell.limit.reached = f"it is read as far as its {MOST_WORDS_READ:,}th word, with all rounds and calls"
                return
            if scanner.at >= len(self.text):
                if self.words and self.branches.taken:
                    yield self._whole("", apart=self.joint in ("|", "|&"))
                return
            operator = scanner.operator()
            if operator == "(" and self._arithmetic():
                continue
            if operator is None:
                self._word()
                continue
            scanner.at += len(operator)
            if operator in ("<<", "<<-"):
                self.delimiter = self._delimiter()
            elif operator in ENDS:
                yield from self._end(operator)
            else:
                self._redirection(operator)

    def _word(self) -> None:
        scanner, before = self.scanner, self.scanner.at
        first = all(word in KEYWORDS for word in self.words)
        declares = bool(self.words) and self.words[0] in DECLARATIONS
        if first and self._definition():
            return
        if declares and any(re.fullmatch(r"-[a-zA-Z]*A[a-zA-Z]*", word) for word in self.words[1:]):
            self.state.keyed.update([match[1]] if (match := ASSIGNMENT.match(self.text, before)) else ())
        if (first or (declares and ARRAY.match(self.text, before))) and assign(
            scanner, sure=self.branches.certain(after_operator=self.behind)
        ):
            self.assigned += self.text[before : scanner.at]
            return
        added = scanner.word(cut=not declares)
        self.texts_known = self.texts_known and OTHER_TEXT.search(self.text, before, scanner.at) is None
        if not added and self.words and self.words[-1].startswith("--") and self.text[before] in "$`":
            self.words[-1] += EMPTIED
        self.words += added
        scanner.at = max(scanner.at, before + 1)
        if first and self.words and self.words[-1] in KEYWORDS:
            self._keyword(self.words[-1])

    def _arithmetic(self) -> bool:
        """Work out the `((…))` that begins here, if one does: a command, or the head of a loop that counts."""
        at = self.scanner.at
        counts = self.words[-1:] == ["for"]
        if not self.text.startswith("((", at) or not (counts or all(word in KEYWORDS for word in self.words)):
            return False
        end = matching_bracket(self.text, at)
        self.shell.limit.words -= (end - at) // LETTERS_A_WORD
        if matching_bracket(self.text, at + 1) != end - 1:
            return False
        expression = self.text[at + 2 : end - 1]
        certain = self.branches.certain(after_operator=self.behind) and not self.branches.repeating and not counts
        self.words += ["((", arithmetic_command(self.state, expression, certain=certain)]
        self.scanner.at = end + 1
        return True

    def _case(self) -> None:
        """Read the head of a `case`, up to its first branch."""
        scanner = self.scanner
        scanner.blank()
        text = " ".join(scanner.word(cut=False))
        self._over_lines()
        scanner.at += 2 if re.match(r"in\b", self.text[scanner.at : scanner.at + 3]) else 0
        self.words = []
        self.branches.case(text)
        self._label()

    def _label(self) -> None:
        """Read the patterns of a branch of a `case`; at its `esac` there are none."""
        self._over_lines()
        scanner = self.scanner
        if re.match(r"esac\b", self.text[scanner.at : scanner.at + 5]):
            self.branches.label(())
            return
        scanner.at += self.text.startswith("(", scanner.at)
        inner = Scanner(self.state, self.text, protecting=True)
        inner.at = scanner.at
        patterns: list[str] = []
        while True:
            inner.blank()
            patterns.append("".join(inner.word(cut=False)))
            inner.blank()
            if not self.text.startswith("|", inner.at):
                break
            inner.at += 1
        closed = self.text.startswith(")", inner.at)
        scanner.at = inner.at + closed
        self.branches.label(patterns if closed else None)

    def _over_lines(self) -> None:
        """Move over blanks, comments and ends of lines."""
        self.scanner.blank()
        while self.text.startswith("\n", self.scanner.at):
            self.scanner.at += 1
            self.scanner.blank()

    def _forget_counted(self) -> None:
        """Know no more what the rounds of a loop count, or shift: how many there are is not known."""
        ahead = self.text[self.heads[-1] : self.heads[-1] + MOST_BODY]
        end = _loop_end(ahead, 0)
        body = ahead[:end] if end > 0 else ahead
        self.shell.limit.words -= len(body) // LETTERS_A_WORD
        for name in counted_in(body):
            set_scalar(self.state, name, UNRESOLVED)
        if re.search(r"\bshift\b|\bset --", body):
            self.state.parameters = (UNRESOLVED,)

    def _keyword(self, word: str) -> None:
        self.branches.keyword(word, after_operator=self.behind)
        if word == "case":
            self._case()
        if word == "{":
            self.braces.append(self.scanner.at - 1)
            self.joint = "" if self.behind else self.joint
        elif word == "}" and self.braces:
            self.braces.pop()
        elif word in ("for", "while", "until", "select"):
            self.loops.append(None)
            self.heads.append(self.scanner.at)
            if word in ("while", "until"):
                self._forget_counted()
        elif word == "done" and self.loops:
            loop = self.loops[-1]
            self.left = 0 if self.left >= len(self.loops) else self.left
            self.passes = False
            if loop is None or not loop.values:
                self.loops.pop()
                self.heads.pop()
            else:
                self.state.variables[loop.name] = loop.values.pop(0)
                self.scanner.at, self.words = loop.begins, []
        self.branches.repeating = None in self.loops

    def _definition(self) -> bool:
        """Keep the function whose definition begins here, if one does: it runs where it is called."""
        match = FUNCTION.match(self.text, self.scanner.at)
        if match is None or self.unclosed > MOST_OPEN:
            return False
        end = _closing(self.text, match.end() - 1)
        if end < 0:
            self.unclosed += 1
            return False
        self.shell.functions[match[1] or match[2]] = self.text[match.end() : end]
        self.scanner.at = end + 1
        return True

    def _end(self, operator: str) -> Iterator[ScriptCommand]:
        """Yield the command that an operator ends, where a run comes to it, and note how its list goes on."""
        stdin = here_document(self.scanner, self.delimiter) if operator == "\n" and self.delimiter else ""
        self.delimiter = "" if operator == "\n" else self.delimiter
        has_command = bool(self.words or self.assigned)
        if self.words and (operator == "\n" or not self.delimiter):
            yield from self._run_to(operator, stdin)
            self.branches.follows(operator)
        elif self.assigned and not self.words:
            # an assignment alone fails only where a command in it does
            self.branches.command(["true"] if not re.search(r"\$\(|`", self.assigned) else ["="], self.joint)
            self.branches.follows(operator)
        elif not self.words and self.branches.list.closed and operator not in ("(", ")"):
            self.branches.follows(operator)
        self.assigned = ""
        if operator in ("(", ")") and self.branches.subshell(opens=operator == "(", after_operator=self.behind):
            self._subshell(opens=operator == "(")
        if has_command or operator != "\n" or not self.behind:
            self.joint = operator
        if operator == ";;" and self.branches.in_case:
            through = self.text.startswith("&", self.scanner.at)
            self.scanner.at += through
            self._label()

    def _run_to(self, operator: str, stdin: str) -> Iterator[ScriptCommand]:
        """Yield the command that ends here, where a run comes to it."""
        certain = self.branches.certain(after_operator=self.behind)
        texts_known = self.texts_known and self.state.parameters_counted
        words = [word.rstrip(EMPTIED) for word in self.words]
        runs = self.branches.command(words, self.joint, texts_known=texts_known) and not self.left
        self._loop()
        self.shell.called.update(word for word in self.words if word in self.shell.functions)
        if runs:
            command = self._whole(stdin, apart=operator in ("|", "|&", "&") or self.joint in ("|", "|&"))
            self._jump(certain=certain)
            yield replace(command, certain=certain)
        if self.assigned.startswith("IFS=") and self.words:
            self.state.variables.pop("IFS", None)  # it counts for that command alone
        self.words, self.writes, self.given, self.texts_known = [], [], None, True

    def _subshell(self, *, opens: bool) -> None:
        """Enter a shell of its own, or leave it: folder and variables are then those from before."""
        shell = self.shell
        if opens:
            self.outer.append((shell.folder, dict(shell.variables), dict(shell.arrays), dict(shell.tables)))
        elif self.outer:
            shell.folder, shell.variables, shell.arrays, shell.tables = self.outer.pop()

    def _jump(self, *, certain: bool) -> None:
        """Leave a round, a function or the script where a run surely would."""
        word = next((word for word in self.words if word not in KEYWORDS), "")
        leaves = word in ("exit", "return", "continue") and not self.branches.in_subshell
        self.passes = self.passes or (leaves and self.branches.guarded)
        if not certain or self.branches.in_subshell:
            return
        if self.branches.repeating and word in ("continue", "break", "exit", "return"):
            return  # the loop may make no round, or another one that goes on
        if self._apart(leaving=word in ("exit", "return")):
            return
        if word == "exit":
            self.shell.over = True
        elif word == "return":
            self.scanner.at = len(self.text)
        elif word in ("continue", "break") and self.loops:
            self.left = len(self.loops)
            if word == "break" and (loop := self.loops[-1]) is not None:
                loop.values.clear()

    def _apart(self, *, leaving: bool) -> bool:
        """Tell whether a shell of its own runs a group that is open, or with `leaving` a loop: only that shell is left then."""
        opens = self.braces + (self.heads if leaving else [])
        return len(opens) > MOST_OPEN or any(self._runs_apart(at) for at in opens)

    def _runs_apart(self, at: int) -> bool:
        if at not in self.apart:
            end = _closing(self.text, at) + 1 if self.text[at] == "{" else _loop_end(self.text, at)
            self.apart[at] = end > 0 and APART.match(self.text, end) is not None
        return self.apart[at]

    def _loop(self) -> None:
        """Begin the rounds of a `for` whose words are known; else its variable is not."""
        words = self.words[next((n for n, word in enumerate(self.words) if word not in KEYWORDS - LOOPS), 0) :]
        if not self.loops or self.loops[-1] is not None or len(words) < 2 or words[0] != "for":
            return
        if words[1] == "((":
            self._forget_counted()
            return
        values = [word.rstrip(EMPTIED) for word in words[3:]] if words[2:3] == ["in"] else list(self.shell.parameters)
        values = [value for word in values for value in _braces(word)]
        words_known = 0 < len(values) <= MOST_ROUNDS and not any(
            letter in value for value in values for letter in f"{UNRESOLVED}{{*?["
        )
        words_known = words_known and not self._looked_up(values)
        self.loops[-1] = _Loop(words[1], values[1:] if words_known else [], self.scanner.at)
        self.scanner.shell.variables[words[1]] = values[0] if words_known else UNRESOLVED
        if not words_known:
            self._forget_counted()
        self.branches.repeating = None in self.loops

    def _looked_up(self, values: Sequence[str]) -> bool:
        """Tell whether the words of a `for` come from looking into folders: how many there are is known only when it runs."""
        origins = self.shell.view.origins if self.shell.view is not None else set()
        folder = self.shell.folder
        return LOOK.search(self.text[self.heads[-1] : self.scanner.at]) is not None or any(
            joined_path(folder, value) in origins for value in values
        )

    def _whole(self, stdin: str, *, apart: bool) -> ScriptCommand:
        apart = apart or self.branches.in_subshell
        separators = self.state.variables.get("IFS") if self.assigned.startswith("IFS=") else None
        guarded = self.branches.guarded or self.passes
        return ScriptCommand(self.words, stdin, tuple(self.writes), guarded, apart, given=self.given, separators=separators)

    def _delimiter(self) -> str:
        scanner = self.scanner
        scanner.blank()
        end = re.compile(r"[\s;|&>]").search(self.text, scanner.at)
        start, scanner.at = scanner.at, end.start() if end else len(self.text)
        return self.text[start : scanner.at].strip("'\"\\")

    def _redirection(self, operator: str) -> None:
        """Pass over a redirection: its file is no argument."""
        scanner = self.scanner
        if operator == "<" and self.text.startswith("(", scanner.at):
            self._printed_by_another()
            self.words.append(UNRESOLVED)  # a name below /dev/fd
            return
        if self.words and self.words[-1] in ("1", "2"):
            self.words.pop()
        scanner.blank()
        if operator == "<" and self.text.startswith("<(", scanner.at):
            scanner.at += 1
            self.given = self._printed_by_another()
        elif scanner.at < len(self.text) and self.text[scanner.at] != "\n":
            target = " ".join(scanner.word(cut=False)) if operator == "<<<" else "".join(scanner.word())
            self.writes += [target] if ">" in operator and not target.isdecimal() else []
            self.given = target if operator == "<<<" else self._text_of(target) if operator == "<" else self.given

    def _printed_by_another(self) -> str:
        """Return what the command of a `<(…)` prints, and move behind it."""
        end = matching_bracket(self.text, self.scanner.at)
        inside = self.text[self.scanner.at + 1 : end]
        self.scanner.at = end + 1
        return self.scanner.substituted(inside)

    def _text_of(self, path: str) -> str | None:
        """Return what a command reads from a file; None where that is not known, or the command sets nothing from it."""
        if not {"read", "mapfile", "readarray"} & {*self.words} or UNRESOLVED in path:
            return None
        return self.scanner.substituted(f"cat '{path}'")


def _braces(word: str, most: int = MOST_ROUNDS + 1) -> list[str]:
    """Return the words of `{0..3}` and `{a,b}`; a word of another form as it is."""
    match = re.search(r"\{(?:(-?(?:0|[1-9]\d{0,5}))\.\.(-?\d{1,6})|([^{}]*,[^{}]*))\}", word)
    if match is None or word[: match.start()].endswith("$"):
        return [word]
    if match[1]:
        first, last = int(match[1]), int(match[2])
        numbers = range(first, last + 1) if first <= last else range(first, last - 1, -1)
        parts = [str(number) for number in numbers[:most]]
    else:
        parts = match[3].split(",")[:most]
    words: list[str] = []
    for part in parts:
        if len(words) < most:
            words += _braces(word[: match.start()] + part + word[match.end() :], most - len(words))
    return words


def host_path(shell: ShellState, path: str) -> str:
    """Return a path of the script as an absolute one of the host; empty where it is not known."""
    whole = joined_path(shell.folder, path)
    if UNRESOLVED in whole:
        return ""
    return whole if shell.container is None else str(shell.container.outside(whole) or "")


def _closing(text: str, start: int) -> int:
    """Return where the brace of a function's body closes that opens at `start`; -1 where it does not."""
    depth, quote, at = 0, "", start
    while at < len(text):
        letter = text[at]
        if letter == "\\" and quote != "'":
            at += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and text[at - 1].isspace():
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if not depth:
                return at
        at += 1
    return -1


def _loop_end(text: str, start: int) -> int:
    """Return where the loop ends whose head begins at `start`; -1 where it does not."""
    depth = 0
    for match in LOOP_WORD.finditer(text, start):
        depth += 1 if match[1] == "do" else -1
        if not depth:
            return match.end()
    return -1
