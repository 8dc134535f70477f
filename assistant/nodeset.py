"""Sets of nodes as operators write them: `node[001-016,020]`, `r[1-2]n[01-16]`, `gpu[0-10/2]`, and commas between.

Follows what `scontrol show hostnames` and ClusterShell do: zero padding is kept, a range includes both ends, `/2` is a step.
What is malformed is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, product

from assistant.errors import UsageError
from assistant.records import Node, NodeState

LIMIT = 100_000
"""More nodes than this in one expression is taken for a slip of the finger."""

MOST_WRITTEN = 2
"""How many times the limit of names may be written where they repeat: `node[1-9],node[1-9]`."""
MOST_SHOWN = 200
"""Characters of an expression in an error."""

Groups = Callable[[str], Iterable[str]]
"""Gives the nodes of a group by its name, without the `@`."""

_PIECE = re.compile(r"\[([^\[\]]*)\]|([^\[\],\s]+)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18})(?:/(\d{1,18}))?)?", re.ASCII)
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def expand(text: str, *, limit: int = LIMIT, groups: Groups | None = None) -> list[str]:
    """Return the node names of an expression, in the order written, each once.

    Args:
        text: For instance `node[01-03],login1`.
        limit: How many names may come out; how often the same name may be written is bounded, too.
        groups: Gives the nodes of `@name`, which is refused without it; `node_groups` makes one.

    Raises:
        UsageError: The expression is malformed, empty, names an unknown group or more nodes than the limit.
    """
    names: dict[str, None] = {}
    name_count = 0
    for part in _parts(text):
        if part.startswith("@") and groups is None:
            raise UsageError(f"nodes {_short(text)}: {part} is a group, and only the scheduler knows groups; write names here")
        members = groups(part[1:]) if part.startswith("@") and groups else _expand_part(part, text, limit)
        for name in members:
            names[name] = None
            name_count += 1
            if len(names) > limit or name_count > MOST_WRITTEN * limit:
                raise _too_many(text, limit)
    return list(names)


def _too_many(text: str, limit: int) -> UsageError:
    return UsageError(f"nodes {_short(text)}: more than {limit:,} names; name fewer at a time")


def _short(text: str) -> str:
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}...")


def node_groups(nodes: Iterable[Node]) -> Groups:
    """Return what `@name` means among these nodes: a partition, a feature or a state, in this order; `@all` is every node.

    `@partition:train`, `@feature:a100` and `@state:idle` say which of the three is meant.
    """
    by_source: dict[str, dict[str, list[str]]] = {"partition": {}, "feature": {}, "state": {}}
    all_names: list[str] = []
    for node in nodes:
        all_names.append(node.name)
        for source, words in (("partition", node.partition.split(",")), ("feature", node.features), ("state", (str(node.state),))):
            for word in filter(None, words):
                by_source[source].setdefault(word, []).append(node.name)

    def members(name: str) -> list[str]:
        if name in ("all", "*"):
            return all_names
        source, colon, word = name.partition(":")
        for group_source in [source] if colon else by_source:
            nodes = by_source.get(group_source, {}).get(word if colon else name)
            if nodes:
                return nodes
        if name in [str(state) for state in NodeState] or (source == "state" and word in list(NodeState)):
            return []  # no node is in that state now, which is an answer
        listed = ", ".join(f"@{word}" for words in by_source.values() for word in words)
        raise UsageError(f"the scheduler knows no group @{name}; known: @all, {listed}")

    return members


def fold(names: Iterable[str]) -> str:
    """Return node names as one short expression; `expand` gives the same set back.

    Args:
        names: Names in any order; a name twice counts once.

    Returns:
        Parts in the order of the alphabet, numbers in order: `login1,node[01-03,07]`. Empty for no names.
    """
    stems: dict[tuple[str, str, int], list[int]] = {}
    plain: list[str] = []
    for name in dict.fromkeys(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        stem, digits, tail = match.groups()
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        stems.setdefault((stem, tail, width), []).append(int(digits))
    _pad_alike(stems)
    folded = [f"{stem}{_ranges(sorted(numbers), width)}{tail}" for (stem, tail, width), numbers in stems.items()]
    return ",".join(sorted([*plain, *folded]))


def _pad_alike(stems: dict[tuple[str, str, int], list[int]]) -> None:
    """Move `node10` to `node09`: a number without a leading zero belongs to the padded ones of the same width."""
    for stem, tail, width in [key for key in stems if key[2]]:
        unpadded = stems.get((stem, tail, 0), [])
        fitting = [number for number in unpadded if len(str(number)) == width]
        if fitting:
            stems[stem, tail, width] += fitting
            unfitting = [number for number in unpadded if len(str(number)) != width]
            if unfitting:
                stems[stem, tail, 0] = unfitting
            else:
                del stems[stem, tail, 0]


def _ranges(numbers: Sequence[int], width: int) -> str:
    runs: list[str] = []
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        first, last = f"{run[0]:0{width}d}", f"{run[-1]:0{width}d}"
        runs.append(first if len(run) == 1 else f"{first}-{last}")
    return runs[0] if len(numbers) == 1 else f"[{','.join(runs)}]"


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += {"[": 1, "]": -1}.get(sign, 0)
        if depth not in (0, 1):
            raise UsageError(f"nodes {_short(text)}: brackets do not match at column {place + 1}; write it like node[001-016]")
        if sign == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if depth:
        raise UsageError(f"nodes {_short(text)}: a bracket is not closed; write it like node[001-016]")
    yield text[start:].strip()


def _expand_part(part: str, whole: str, limit: int) -> Iterator[str]:
    choices: list[list[str]] = []
    end, count = 0, 1
    for piece in _PIECE.finditer(part):
        if piece.start() != end:
            break
        end = piece.end()
        choices.append([piece[2]] if piece[2] else _numbers(piece[1], whole, limit))
        count *= len(choices[-1])
        if count > MOST_WRITTEN * limit:
            raise _too_many(whole, limit)
    if not part or end != len(part) or part.startswith("-"):
        raise UsageError(f"nodes {_short(whole)}: {part!r} is no node name; write it like node[001-016],node020")
    yield from ("".join(combination) for combination in product(*choices))


def _numbers(inside: str, whole: str, limit: int) -> list[str]:
    numbers: list[str] = []
    for part in inside.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"nodes {_short(whole)}: [{inside[:MOST_SHOWN]}] is no list of numbers; write it like [001-016,020]")
        first, last, step = match[1], match[2] or match[1], int(match[3] or 1)
        if int(last) < int(first) or step == 0:
            raise UsageError(
                f"nodes {_short(whole)}: the range {part.strip()} goes nowhere; write the smaller number first and a step above 0"
            )
        if len(numbers) + (int(last) - int(first)) // step >= MOST_WRITTEN * limit:
            raise _too_many(whole, limit)
        width = len(first) if first.startswith("0") else 0
        numbers += [f"{number:0{width}d}" for number in range(int(first), int(last) + 1, step)]
    return numbers
