"""Read the text of a batch script as far as is needed to know which files it writes: commands, redirections, assignments.

A reader of shell text that never runs anything: what only a run could tell (`$(date)`, `$RANDOM`, globs) becomes a gap that matches
any text within one part of a path. Text that no shell would take is read as far as it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_CHARACTERS = 256 << 10
"""Of a script; what stands behind is not read."""
MOST_NESTED = 4
"""Levels of `bash -c '…'`, `$(…)` and `>(…)` that are read."""
KEYWORDS = frozenset("then do else elif if while until ! { time".split())
"""Words behind which a command begins."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATORS = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>\||>&|&&|\|\||;;&|;;|;&|\|&|[<>&|;()\n]")
_BRACED = re.compile(r"(!?)([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])(?:(:?[-=])(.*))?$", re.DOTALL)
_REDIRECTING = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
_NUMBERED = re.compile(r"\d{1,4}|\{[A-Za-z_][A-Za-z0-9_]*\}")


class WordPiece(NamedTuple):
    """A part of a word: literal text, a variable, or a gap."""

    text: str = ""
    name: str = ""
    """Of the variable; empty for text and for a gap."""
    default: str | None = None
    """Source text of `${NAME:-default}`."""
    gap: bool = False
    quoted: bool = False


class Word(NamedTuple):
    """A word of a command."""

    pieces: tuple[WordPiece, ...]
    source: str
    """The word without its quotes and with nothing expanded: what `bash -c` would be given but for the variables."""

    @property
    def plain(self) -> str:
        """The text of a word that holds text only; empty for every other."""
        return "".join(piece.text for piece in self.pieces) if all(not p.name and not p.gap for p in self.pieces) else ""


class Redirection(NamedTuple):
    """Output that goes into a file."""

    descriptor: str
    """`1`, `2`, `&` for both, or another number or name."""
    append: bool
    target: Word


@dataclass
class ShellCommand:
    """One simple command, with the assignments before it."""

    words: list[Word] = field(default_factory=list)
    assignments: list[tuple[str, Word]] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)
    piped: bool = False
    """Whether its input is the output of the command before it."""
    level: int = 0
    """0 in the script itself, more inside parentheses, substitutions and functions."""


def commands(script: str, level: int = 0) -> Iterator[ShellCommand]:
    """Yield the simple commands of a script in the order of the text, those inside `$(…)` and `>(…)` with it."""
    if level > MOST_NESTED:
        return
    reader = _Reader(script[:MOST_CHARACTERS])
    current = ShellCommand(level=level)
    depth = 0
    for token in reader.tokens():
        if isinstance(token, Word):
            _add_word(current, token)
            continue
        operator, descriptor, target = token
        if target is not None:
            if operator in _REDIRECTING:
                _redirect(current, operator, descriptor, target)
            continue
        if current.words or current.assignments or current.redirections:
            yield current
        depth = max(0, depth + {"(": 1, ")": -1}.get(operator, 0))
        current = ShellCommand(piped=operator in ("|", "|&"), level=level + depth)
    if current.words or current.assignments or current.redirections:
        yield current
    for inner in reader.nested:
        yield from commands(inner, level + 1)


def _add_word(command: ShellCommand, word: Word) -> None:
    first = word.pieces[0] if word.pieces else WordPiece()
    assigned = re.match(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", first.text) if not first.quoted and not first.name else None
    exporting = command.words and command.words[0].plain in ("export", "declare", "local", "readonly", "typeset")
    beginning = all(earlier.plain in KEYWORDS for earlier in command.words)
    if assigned is not None and (beginning or exporting):
        value_piece = first._replace(text=first.text[assigned.end() :])
        value_word = Word((value_piece, *word.pieces[1:]), word.source[assigned.end() :])
        command.assignments.append((assigned[1], value_word if not assigned[2] else Word((WordPiece(gap=True),), "")))
    else:
        command.words.append(word)


def _redirect(command: ShellCommand, operator: str, descriptor: str, target: Word) -> None:
    if operator == ">&":
        if re.fullmatch(r"\d+|-|\d+-", target.plain):
            return  # a copy of another descriptor
        descriptor = descriptor or "&"
    both = operator in ("&>", "&>>")
    command.redirections.append(Redirection("&" if both else descriptor or "1", operator.endswith(">>"), target))


_Operator = tuple[str, str, "Word | None"]


class _Reader:
    """Cuts a text into words and operators."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\\\r\n", "\\\n")
        self.at = 0
        self.nested: list[str] = []
        """Source of substitutions, to be read as scripts of their own."""
        self._here_documents: list[tuple[str, bool]] = []

    def tokens(self) -> Iterator[Word | _Operator]:
        while (begin := self._skip_blanks()) < len(self.text):
            match = _OPERATORS.match(self.text, begin)
            if match is None or self._is_substitution(begin):
                word = self._word()
                if self.at == begin:  # nothing that this reader knows
                    self.at += 1
                    continue
                number = _NUMBERED.fullmatch(word.source) if self.text[self.at : self.at + 1] in ("<", ">") else None
                if number is None or len(word.pieces) != 1 or word.pieces[0].quoted:
                    yield word
                    continue
                match = _OPERATORS.match(self.text, self.at)
                if match is None:
                    yield word
                    continue
                yield self._operator(match, word.source)
                continue
            yield self._operator(match, "")

    def _operator(self, match: re.Match[str], descriptor: str) -> _Operator:
        operator = match[0]
        self.at = match.end()
        if operator == "\n":
            self._skip_here_documents()
            return operator, "", None
        if operator[0] not in "<>" and not operator.startswith("&>"):
            return operator, "", None
        self._skip_blanks()
        target = self._word()
        if operator in ("<<", "<<-"):
            self._here_documents.append((target.source, operator == "<<-"))
        return operator, descriptor, target

    def _is_substitution(self, at: int) -> bool:
        return self.text.startswith((">(", "<("), at)

    def _skip_blanks(self) -> int:
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t\r":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                break
        return self.at

    def _skip_here_documents(self) -> None:
        for mark, indented in self._here_documents:
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if indented else line).rstrip("\r") == mark:
                    break
        self._here_documents = []
        self.at = min(self.at, len(self.text))

    def _word(self) -> Word:
        pieces: list[WordPiece] = []
        source: list[str] = []
        text = self.text
        while self.at < len(text):
            sign = text[self.at]
            if self._is_substitution(self.at):
                if pieces:
                    break
                self.at += 1
                self.nested.append(self._parenthesised())
                pieces.append(WordPiece(gap=True))
                break
            if sign in " \t\r\n;&|<>()":
                break
            if sign == "\\":
                if not text.startswith("\\\n", self.at):
                    pieces.append(WordPiece(text[self.at + 1 : self.at + 2], quoted=True))
                    source.append(text[self.at + 1 : self.at + 2])
                self.at += 2
            elif sign == "'":
                end = text.find("'", self.at + 1)
                end = len(text) if end < 0 else end
                pieces.append(WordPiece(text[self.at + 1 : end], quoted=True))
                source.append(text[self.at + 1 : end])
                self.at = end + 1
            elif sign == '"':
                self._double_quoted(pieces, source)
            elif sign in "$`":
                self._expansion(pieces, source)
            else:
                match = re.compile(r"[^ \t\r\n;&|<>()\\'\"$`]+").match(text, self.at)
                assert match is not None  # every other character was met above
                source.append(match[0])
                pieces += _with_gaps(match[0])
                self.at = match.end()
        return Word(tuple(pieces), "".join(source))

    def _double_quoted(self, pieces: list[WordPiece], source: list[str]) -> None:
        text = self.text
        self.at += 1
        begin = len(pieces)
        while self.at < len(text) and text[self.at] != '"':
            if text[self.at] == "\\":
                literal = text[self.at + 1 : self.at + 2]
                if literal != "\n":
                    literal = literal if literal in '$`"\\' else f"\\{literal}"
                    pieces.append(WordPiece(literal, quoted=True))
                    source.append(literal)
                self.at += 2
            elif text[self.at] in "$`":
                self._expansion(pieces, source)
            else:
                match = re.compile(r'[^"\\$`]+').match(text, self.at)
                assert match is not None  # every other character was met above
                pieces.append(WordPiece(match[0], quoted=True))
                source.append(match[0])
                self.at = match.end()
        self.at += 1
        if len(pieces) == begin:
            pieces.append(WordPiece("", quoted=True))

    def _expansion(self, pieces: list[WordPiece], source: list[str]) -> None:
        text, begin = self.text, self.at
        if text[self.at] == "`":
            end = text.find("`", self.at + 1)
            end = len(text) if end < 0 else end
            self.nested.append(text[self.at + 1 : end])
            self.at = end + 1
            pieces.append(_named_by(text[begin + 1 : end]))
        elif text.startswith("$((", self.at):
            self.at += 1
            self._parenthesised()
            pieces.append(WordPiece(gap=True))
        elif text.startswith("$(", self.at):
            self.at += 1
            inner = self._parenthesised()
            self.nested.append(inner)
            pieces.append(_named_by(inner))
        elif text.startswith("${", self.at):
            inner = self._braced()
            match = _BRACED.match(inner)
            if match is None or match[1] or (match[3] is None and match.end() != len(inner)):
                name_match = _NAME.match(inner)
                # `${NAME%suffix}` and the like: the value is changed, so it is any text
                pieces.append(
                    WordPiece(gap=True) if name_match is None or inner != name_match[0] else WordPiece(name=name_match[0])
                )
            else:
                pieces.append(WordPiece(name=match[2], default=match[4] if match[3] else None))
        elif match := re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])").match(text, self.at):
            self.at = match.end()
            pieces.append(WordPiece(name=match[1]))
        else:
            self.at += 1
            pieces.append(WordPiece("$"))
        source.append(text[begin : self.at])

    def _parenthesised(self) -> str:
        """Return what stands between the parentheses that open here, and go behind them."""
        begin, depth, text = self.at + 1, 0, self.text
        while self.at < len(text):
            sign = text[self.at]
            if sign == "\\":
                self.at += 1
            elif sign == "'":
                end = text.find("'", self.at + 1)
                self.at = len(text) if end < 0 else end
            elif sign == "(":
                depth += 1
            elif sign == ")":
                depth -= 1
                if not depth:
                    self.at += 1
                    return text[begin : self.at - 1]
            self.at += 1
        return text[begin:]

    def _braced(self) -> str:
        begin, depth, text = self.at + 2, 0, self.text
        while self.at < len(text):
            if text[self.at] == "{":
                depth += 1
            elif text[self.at] == "}":
                depth -= 1
                if not depth:
                    self.at += 1
                    return text[begin : self.at - 1]
            self.at += 1
        return text[begin:]


def _named_by(command: str) -> WordPiece:
    """Return what a command substitution stands for: the node's name, the folder, or any text."""
    words = command.split()
    name = {"hostname": "HOSTNAME", "pwd": "PWD"}.get(words[0] if words else "", "")
    return WordPiece(name=name) if name else WordPiece(gap=True)


def _with_gaps(text: str) -> list[WordPiece]:
    """Cut unquoted text at what the shell would expand: `*`, `?`, `[…]`, `{a,b}`."""
    pieces: list[WordPiece] = []
    for part in re.split(r"(\*|\?|\[[^\]/]{1,80}\]|\{[^{}]{0,200}(?:,|\.\.)[^{}]{0,200}\})", text):
        if part:
            gap = part[0] in "*?" or (part[0] in "[{" and len(part) > 1)
            pieces.append(WordPiece(gap=True) if gap else WordPiece(part))
    return pieces
