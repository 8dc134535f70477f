"""Replace every secret of a text by `[redacted]`, and names of hosts and users by stand-ins.

Harmless to what diagnosis reads: the number of lines stays, and `tokens per second: 12`, `KeyError: 'secret'` or `MAX_TOKENS=4096`
stay as they are. The time is linear in the length of the text: each detector looks at a bounded number of characters around each
place at which it starts. Stand-ins are for a model or a service that is not the site's own; they are put back in what it answers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from assistant.redact.disguises import disguised_spans, undisguised_spans
from assistant.redact.forms import command_spans, maker_spans, random_spans, token_spans
from assistant.redact.literals import argument_spans, element_spans, list_spans
from assistant.redact.neighbours import code_spans, declared_spans, sentence_spans, wrapped_spans
from assistant.redact.prompts import prompt_spans
from assistant.redact.shell import file_spans, input_spans
from assistant.redact.syntax import assignment_spans, names_option, names_secret, next_line_spans
from assistant.redact.tables import column_spans, hung_spans, inserted_spans

__all__ = ["MASK", "Mask", "block_spans", "redact", "redact_lines", "redact_value", "secret_spans", "url_spans"]

MASK = "[redacted]"

_ROUNDS = 4
"""How often a text is looked at again after a change: a value can show what stands behind it only when it is gone."""


def redact(text: str) -> str:
    """Return the text with every secret replaced by `[redacted]`; twice changes nothing more, the number of lines stays."""
    for _ in range(_ROUNDS):
        spans = secret_spans(text)
        if not spans:
            return text
        text = _replaced(text, spans)
    return text


def redact_lines(texts: Sequence[str]) -> list[str]:
    """Return lines that follow one another without their secrets, also of those that only their neighbours tell: keys, YAML.

    Each is redacted by itself, too, so a line is what `redact` makes of it, or less.
    """
    if len(texts) < _FEWEST:
        return [redact(text) for text in texts]
    joined = "\n".join(texts)
    spans = _merged(undisguised_spans(joined, _neighbour_spans))
    lines: list[str] = []
    place = start = 0
    for text in texts:
        end = start + len(text)
        while place < len(spans) and spans[place][1] <= start:
            place += 1
        inside: list[tuple[int, int]] = []
        following = place
        while following < len(spans) and spans[following][0] < end:
            first, last = max(spans[following][0], start) - start, min(spans[following][1], end) - start
            inside += [(first, last)] if first < last and text[first:last].strip() and text[first:last] != MASK else []
            following += 1
        lines.append(redact(_replaced(text, inside) if inside else text))
        start = end + 1
    return lines


_FEWEST = 2
"""Lines from which on one has a neighbour."""


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of every secret in a text, ascending and not overlapping.

    What was masked before is not reported. A span may reach over several lines.
    """
    if len(text) < _SHORTEST or (len(text) < _SHORTEST_TOKEN and text.isalnum()):
        return []
    return _merged(span for span in undisguised_spans(text, _spans) if text[span[0] : span[1]] != MASK)


def _neighbour_spans(text: str) -> list[tuple[int, int]]:
    """Return the secrets of a text of several lines that a line alone does not tell."""
    lowered = _lowered(text)
    return [*_of_several_lines(text, lowered), *block_spans(text, lowered), *sentence_spans(text, lowered, below=True)]


def _of_several_lines(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    yield from next_line_spans(text, lowered)
    yield from disguised_spans(text, lambda plain: next_line_spans(plain, _lowered(plain)))
    yield from wrapped_spans(text, _spans)
    yield from code_spans(text, lowered)
    yield from column_spans(text, lowered)
    yield from hung_spans(text)
    yield from _alone_or_not(text, lowered)


def _alone_or_not(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield what stands on one line or on several."""
    yield from list_spans(text, lowered) if "tokens" in lowered else ()
    yield from element_spans(text)
    yield from input_spans(text)
    yield from file_spans(text, lowered)
    yield from declared_spans(text, lowered)
    yield from inserted_spans(text, lowered) if "into" in lowered or "copy" in lowered else ()


def _spans(text: str) -> list[tuple[int, int]]:
    lowered = _lowered(text)
    spans = [
        *block_spans(text, lowered),
        *assignment_spans(text, lowered),
        *disguised_spans(text, lambda plain: assignment_spans(plain, _lowered(plain))),
        *url_spans(text),
        *token_spans(text),
        *command_spans(text, lowered),
        *maker_spans(text, lowered),
        *prompt_spans(text, lowered),
        *random_spans(text),
        *sentence_spans(text, lowered),
        *_alone_or_not(text, lowered),
        *argument_spans(text, lowered),
    ]
    if "\n" in text:
        spans += [*wrapped_spans(text, _spans), *code_spans(text, lowered), *column_spans(text, lowered), *hung_spans(text)]
    return sorted(spans, key=lambda span: span[1])


_SHORTEST = 6
"""Characters of the shortest text that can hold a secret behind its name: `pwd=ab`."""


_SHORTEST_TOKEN = 16
"""Characters of the shortest text that is a secret by its own form; most cells of tables are shorter."""


def redact_value(value: Any) -> Any:
    """Return a JSON value with the secrets in its texts, and under names such as `api_key`, replaced."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return _redacted_mapping(value)
    if isinstance(value, (list, tuple)):
        return _redacted_items(value)
    return value


def _redacted_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    # Kubernetes and ECS write a variable as {"name": "DB_PASSWORD", "value": "..."}
    label = next((value[key] for key in ("name", "key", "Name", "Key") if isinstance(value.get(key), str)), "")
    names = {"value", "Value"} if label and names_secret(label) else set()
    return {
        redact(key) if isinstance(key, str) else key: MASK if _is_secret(key, item, names) else redact_value(item)
        for key, item in value.items()
    }


def _is_secret(key: object, item: object, names: set[str]) -> bool:
    if isinstance(item, bool) or item in ("", None) or not isinstance(key, str):
        return False
    if key in names:
        return isinstance(item, (str, int))
    return isinstance(item, str) and names_secret(key)


def _redacted_items(value: Sequence[Any]) -> list[Any]:
    # ["--password", "..."] and ["Authorization", "..."]
    items: list[Any] = []
    for position, item in enumerate(value):
        before = value[position - 1] if position else None
        is_secret = isinstance(item, str) and bool(item) and isinstance(before, str) and names_option(before, item)
        items.append(MASK if is_secret else redact_value(item))
    return _redacted_by_neighbours(value, items)


def _redacted_by_neighbours(value: Sequence[Any], items: list[Any]) -> list[Any]:
    """Return the items of a list, of texts that are lines of one log without what only their neighbours tell to be a secret."""
    if len(items) >= _FEWEST and all(isinstance(item, str) for item in value):
        by_neighbours = redact_lines(value)
        return [item if item == MASK else line for item, line in zip(items, by_neighbours, strict=True)]
    if len(items) >= _FEWEST and all(isinstance(item, Mapping) and isinstance(item.get("text"), str) for item in value):
        by_neighbours = redact_lines([item["text"] for item in value])
        return [{**item, "text": line} for item, line in zip(items, by_neighbours, strict=True)]
    return items


def _replaced(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces: list[str] = []
    last = 0
    for start, end in spans:
        pieces.append(text[last:start])
        pieces.append("\n".join([MASK] * (text.count("\n", start, end) + 1)))
        last = end
    pieces.append(text[last:])
    return "".join(pieces)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


_CAPITALS = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}


def _lowered(text: str) -> str:
    """Return the text in small letters, each at its own place: some letters of other scripts grow when lowered."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.translate(_CAPITALS)


# Find secrets in addresses: `scheme://user:password@host`, also with `@`, `/` or `:` in the password; also without a scheme.

_SIGN = r"(?:[^\s@'\"<>`]|(?<=\w)['<>`](?=\w))"
"""Of a password; quotes and brackets only within a word, where no text around the address ends."""
_AUTHORITY = re.compile(rf"://(?P<user>{_SIGN}{{0,512}})@", re.ASCII)
"""From the scheme to the first `@`; `/` in between is allowed only behind a colon, see `url_spans`."""
_MORE = re.compile(r"[^\s/@'\"<>`?#]{0,256}@(?=[\w.\[-])", re.ASCII)
"""A further part of a password that holds `@` itself."""
_MORE_WITH_PATH = re.compile(rf"(?:(?!://){_SIGN}){{0,256}}@(?=[\w.\[@-])", re.ASCII)
"""The same, where the signs of a path are in it, too."""
_HOST = re.compile(
    r"(?:[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[A-Za-z][\w-]{1,62}|\d{1,3}(?:\.\d{1,3}){3}|localhost|\[[0-9a-fA-F:]{2,40}\]"
    r"|[\w.-]{1,253}(?=:\d{1,5}(?!\w)))(?::\d{1,5})?(?![\w:@-])",
    re.ASCII,
)
"""What can be nothing but a host: a name with a dot, an address, whatever has a port. A word alone may be part of a password."""
_PORT = re.compile(r":\d{1,5}(?:[/?#]|\Z)")
_PATH_SIGN = re.compile(r"[/?#]")
_PLAIN_USERS = frozenset({"git", "ec2-user", "ubuntu", "root", "hg", "svn"})

_BARE = re.compile(
    r"(?<![\w/.@:\\-])[A-Za-z][\w.-]{0,31}:(?P<password>[^\s:/@'\"\[\]{}()<>,]{3,64})@"
    r"(?:tcp\(|unix\(|[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}\b|[A-Za-z0-9-]{1,63}:\d{2,5}\b)",
    re.ASCII,
)
"""`user:password@host:port`, as in proxies and Go's database sources."""
_ORACLE = re.compile(r"(?<![\w/])[A-Za-z]\w{0,31}/(?P<password>[^\s/@'\"]{3,64})@(?://|[\w.-]{1,63}:\d{4,5}/)", re.ASCII)


def url_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of user and password of addresses."""
    if "@" not in text:
        return
    position = 0
    while "://" in text and (match := _AUTHORITY.search(text, position)):
        position = match.end()
        user = match["user"]
        if _is_path(user) or not user or user == "[redacted]":
            continue
        while more := _MORE.match(text, position):
            position = more.end()
        position = _behind_password(text, position) if ":" in user or user not in _PLAIN_USERS else position
        if ":" in user or user not in _PLAIN_USERS:
            yield match.start("user"), position - 1
    for pattern in (_BARE, _ORACLE):
        for match in pattern.finditer(text):
            yield match.span("password")


def _behind_password(text: str, position: int) -> int:
    """Return where the host begins that stands behind a password with `@`, `/`, `#` or `?` in it; `position` is behind an `@`."""
    for _ in range(_MOST_SIGNS):
        if _HOST.match(text, position) or not (more := _MORE_WITH_PATH.match(text, position)):
            break
        position = more.end()
    return position


_MOST_SIGNS = 16
"""Signs `@` of one password."""


def _is_path(user: str) -> bool:
    """Tell whether what stands before `@` is host and path: `s3://bucket/checkpoint@step-100`."""
    first = _PATH_SIGN.search(user)
    if first is None:
        return False
    colon = user.find(":")
    return colon < 0 or colon > first.start() or _PORT.match(user, colon) is not None


# Find keys of several lines: PEM, OpenSSH, PGP and PuTTY, whole or cut off at either end, also with escaped newlines.

_KEY_LABEL = r"(?:[\w-]{1,16} (?<!\bPUBLIC )){0,4}(?:KEY(?: BLOCK)?|[Kk]ey(?: V\d)?)-----"
"""Of whatever key but a public one: `RSA PRIVATE KEY`, `OpenVPN Static key V1`."""
_BEGIN = re.compile(rf"-----BEGIN {_KEY_LABEL}|---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----", re.ASCII)
_END = re.compile(rf"-----END {_KEY_LABEL}|---- END SSH2 ENCRYPTED PRIVATE KEY ----", re.ASCII)
_PUTTY = re.compile(r"Private-Lines: *\d{1,3}|Private-MAC: *[0-9a-f]{20,}")
_ALONE = re.compile(
    r"(?<![A-Za-z0-9+/=._-])(?=[A-Za-z0-9+/]{0,40}[a-z])(?=[A-Za-z0-9+/]{0,40}[A-Z])(?=[A-Za-z0-9+/]{0,40}[0-9])"
    r"[A-Za-z0-9+/]{64}(?:[A-Za-z0-9+/]{6}|[A-Za-z0-9+/]{12})?(?=[ \t\r\"',]{0,4}(?:\n|\Z))"
)
"""A line out of the middle of a key: PEM has 64 characters, OpenSSH 70, old tools 76."""
_KUBERNETES = re.compile(
    r"(?:string)?data:[ \t]*\n(?P<lines>(?:[ \t]+[\w.-]{1,253}:[ \t]*[^\n]{1,4096}(?:\n|\Z)){1,200})", re.IGNORECASE
)
_ENTRY = re.compile(r":[ \t]*(?P<value>[^\s][^\n]*)")
_LONGEST = 20_000
"""Characters of the longest key: RSA of 16,384 bits is 12,700, and line marks come on top."""

_BODY = re.compile(
    r"(?:[^\n]{0,200}?[^A-Za-z0-9+/=\n]|)"  # what a launcher puts before a line
    r"(?:[A-Za-z0-9+/]{16,}={0,2}|[A-Za-z0-9+/]{1,75}={1,2}|={1,2}[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{4,})[\"',\\ \t\r]{0,4}"
)
"""A line of base64, at the end of a line of a log."""
_HEADER = re.compile(r"[^\n]{0,200}\b(?:Proc-Type|DEK-Info|Version|Comment|Hash|Key-Lines|MessageID|Charset)\b[:=][^\n]{0,300}")
_ESCAPED = re.compile(r"(?:[A-Za-z0-9+/=]{0,100}(?:\\{1,8}[nr])?){0,400}")
"""The body on one line, with newlines written as backslash n."""


def block_spans(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of keys, from the first to the last line."""
    yield from _rows_of_keys(text)
    if "kind: secret" in lowered:
        for block in _KUBERNETES.finditer(text):
            yield from (entry.span("value") for entry in _ENTRY.finditer(text, block.start("lines"), block.end("lines")))
    if "private" not in lowered and " key" not in lowered:
        return
    ends = [match.span() for match in _END.finditer(text)]
    starts = [start for start, _ in ends]
    last = 0
    for begin in _BEGIN.finditer(text):
        if begin.start() < last:
            continue
        following = bisect_left(starts, begin.end())
        closing = ends[following] if following < len(ends) else None
        paired = closing is not None and closing[0] - begin.end() <= _LONGEST
        last = closing[1] if closing and paired else _end_of_headless_key(text, begin.end())
        yield begin.start(), last
    yield from ((_before(text, start), end) for start, end in ends if start >= last or _tail_alone(text, start))
    yield from _putty_spans(text)


def _rows_of_keys(text: str) -> Iterator[tuple[int, int]]:
    """Yield full rows out of the middle of a key, and the shorter one that follows, behind the same marks of a launcher."""
    for match in _ALONE.finditer(text):
        yield match.span()
        mark_start = text.rfind("\n", max(match.start() - _LONGEST_MARK, 0), match.start()) + 1
        start, mark = match.end(), text[max(mark_start, match.start() - _LONGEST_MARK) : match.start()]
        for pattern in (_LAST_ROW, _CHECKSUM):
            newline = text.find("\n", start, start + 8)
            row = pattern.match(text, newline + 1 + len(mark)) if newline >= 0 else None
            if row is None or _without_digits(text[newline + 1 : newline + 1 + len(mark)]) != _without_digits(mark):
                continue
            yield row.span("row")
            start = row.end("row")


def _without_digits(mark: str) -> str:
    return mark.translate(_NO_DIGITS)


_NO_DIGITS = {ord(digit): "0" for digit in "123456789"}
_LONGEST_MARK = 200
_ROW_END = r"(?=[ \t\r\"',]{0,4}(?:\n|\Z))"
_LAST_ROW = re.compile(
    rf"(?P<row>(?:[A-Za-z0-9+/]{{16,76}}|(?=[A-Za-z+/]{{0,16}}[0-9+/=])[A-Za-z0-9+/]{{2,16}})={{0,2}}){_ROW_END}"
)
_CHECKSUM = re.compile(rf"(?P<row>=[A-Za-z0-9+/]{{4}}){_ROW_END}")


def _tail_alone(text: str, end: int) -> bool:
    return "-----BEGIN" not in text[max(end - _LONGEST, 0) : end]


def _end_of_headless_key(text: str, position: int) -> int:
    """Return where a key ends that has no last line: behind what looks like base64."""
    escaped = _ESCAPED.match(text, position)
    end = escaped.end() if escaped else position
    while end < len(text) and text[end] == "\n" and end - position < _LONGEST:
        stop = _line_end(text, end + 1)
        line = text[end + 1 : stop]
        if line.strip() and not (_BODY.fullmatch(line[-300:]) or _HEADER.fullmatch(line)):
            break
        end = stop
    return end


def _before(text: str, position: int) -> int:
    """Return where the tail of a key begins whose first line is gone."""
    start = position
    while start > 0 and position - start < _LONGEST and _is_escape_or_base64(text[start - 1]):
        start -= 1
    mark_start = text.rfind("\n", max(start - _LONGEST_MARK, 0), start) + 1
    if start == position and mark_start > 0 and "-----" not in text[mark_start:start]:
        start = mark_start  # what a launcher puts before the last line
    while start > 0 and text[start - 1] == "\n" and position - start < _LONGEST:
        begin = text.rfind("\n", max(start - 1 - 300, 0), start - 1) + 1
        if not _BODY.fullmatch(text[begin : start - 1]):
            break
        start = begin
    return start


def _is_escape_or_base64(sign: str) -> bool:
    return sign.isascii() and (sign.isalnum() or sign in "+/=\\")


def _putty_spans(text: str) -> Iterator[tuple[int, int]]:
    for match in _PUTTY.finditer(text):
        if match.group().startswith("Private-Lines"):
            yield match.start(), _end_of_headless_key(text, match.end())
        else:
            yield match.span()


def _line_end(text: str, start: int) -> int:
    stop = text.find("\n", start)
    return len(text) if stop < 0 else stop


class Mask:
    """Replaces names of hosts and users by stand-ins, and back: for a model or a service that is not the site's own.

    A name has the same stand-in whenever the key is the same; `show` knows those that this mask has hidden or was made with.
    Hosts that are numbered like a known one (node017 beside node016), and folded sets of them (`node[001-016]`), are hidden too.
    """

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), *, key: bytes = b"") -> None:
        """Begin with names of hosts and users.

        Args:
            hosts: Names of nodes and login hosts.
            users: Login names; those that every system has stay.
            key: Secret of the site: without it nobody can find a name by trying all.
        """
        self._key = key
        self._names: dict[str, str] = {}
        self._stands_for: dict[str, str] = {}
        self._lock = threading.Lock()
        self.learn(hosts, users)

    def learn(self, hosts: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        """Hide further names from now on."""
        new_hosts = sorted({host for host in hosts if _NAME.fullmatch(host)})
        with self._lock:
            for host in new_hosts:
                self._stand_in("host", host)
            for user in sorted({user for user in users if _NAME.fullmatch(user) and user not in _EVERYWHERE}):
                self._stand_in("user", user)
            self._pattern = self._compiled()

    def hide(self, text: str) -> str:
        """Return the text with stand-ins for names."""
        with self._lock:
            return self._pattern.sub(lambda match: self._stand_in("host", match.group()), text) if self._names else text

    def show(self, text: str) -> str:
        """Return the text with the names themselves; a stand-in that this mask does not know stays."""
        return _STAND_IN.sub(lambda match: self._name(match.group()), text)

    def _name(self, stand_in: str) -> str:
        # letters that follow may be hexadecimal digits, too
        for end in range(len(stand_in), len("host-") + _DIGITS - 1, -1):
            if stand_in[:end] in self._stands_for:
                return self._stands_for[stand_in[:end]] + stand_in[end:]
        return stand_in

    def _stand_in(self, sort: str, name: str) -> str:
        if name not in self._names:
            digest = hmac.new(self._key, f"{sort}:{name}".encode(), hashlib.sha256).hexdigest()
            length = _DIGITS
            while (alias := f"{sort}-{digest[:length]}") in self._stands_for:
                length += 1
            self._names[name], self._stands_for[alias] = alias, name
        return self._names[name]

    def _compiled(self) -> re.Pattern[str]:
        numbered = {
            (match["stem"], len(match["number"]))
            for name, alias in self._names.items()
            if alias.startswith("host-") and (match := _NUMBERED.fullmatch(name))
        }
        number_patterns = [rf"{re.escape(stem)}\d{{{digits}}}" for stem, digits in sorted(numbered)]
        folded = [rf"{re.escape(stem)}\[[\d,-]+\]" for stem in sorted({stem for stem, _ in numbered})]
        # a numbered host is matched by its likes: thousands of alternatives would be slow
        single_names = [
            name for name, alias in self._names.items() if not (alias.startswith("host-") and _NUMBERED.fullmatch(name))
        ]
        plain = [re.escape(name) for name in sorted(single_names, key=lambda name: (-len(name), name)) if "[" not in name]
        names = "|".join([*folded, *plain, *number_patterns])
        return re.compile(rf"{_BOUNDARY}(?:{names})(?![\w-])")


_NAME = re.compile(r"(?=[^A-Za-z]{0,252}[A-Za-z])[A-Za-z0-9][A-Za-z0-9._-]{1,252}")
_NUMBERED = re.compile(r"(?P<stem>.{0,252}[A-Za-z-])(?P<number>\d{1,252})")
_DIGITS = 6
_STAND_IN = re.compile(rf"(?:host|user)-[0-9a-f]{{{_DIGITS},64}}")
_BOUNDARY = r"(?:(?<![\w-])|(?<=\\n)|(?<=\\r)|(?<=\\t))"
"""No letter of the same word; the letter of an escape in JSON is none."""
_EVERYWHERE = frozenset({"root", "nobody", "daemon", "slurm", "munge", "nightshift"})
