"""Find the templates behind lines that no filter covers, at the speed of a dictionary, and what a failing run has new of them.

A line is masked (`prefix.masked`), and lines whose masked text is the same are one *key*: millions of lines are a few thousand
keys. Which keys are one template is told by a tree of fixed depth, then two comparisons in its leaves, when it is asked for. Keys
are compared in the order of their text, so it does not depend on the order of lines. The state is plain JSON. What was learned of
earlier runs of a task is found again by the task's name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from assistant.logs.lines import clean
from assistant.logs.prefix import WordMask, masked, readable
from assistant.records import Job

MANY = 5
"""Different words at one place, all else being equal, that make it the place of a value."""
LEAST_SIMILARITY = 0.7
"""Share of the words that lines of one template have in common at least."""

CROWD = 100
"""Different words at one place of lines with the same first word that make it the place of a value where there is a crowd."""
NEAR = 30
"""Templates of a leaf that a line is compared with; in the order of texts alike ones are near."""
PLAIN = 2
"""How much two plain words in one place weigh against it."""

Words = tuple[str, ...]

# nothing behind `=` or between brackets is a word as well: an empty value
_TOKEN = re.compile(r"[^\s=:,;|()\[\]{}<>\"]+|(?<=[=(\[])(?=[\s,;)\]]|\Z)|.")
_WORDY = re.compile(r"[^\W_]")
_VALUE = re.compile("[\x01-\x0f]")
_NAME_WORD = re.compile(r"(?=[^_.$]*+[_.$])[\w.$-]++|[A-Z]?[a-z0-9]+[A-Z]\w*")


class Fitting:
    """Known templates, asked which of them a masked line has."""

    def __init__(self, templates: Iterable[str]) -> None:
        self._leaves: dict[tuple[int, str], list[tuple[Words, str]]] = defaultdict(list)
        self._exact = set(templates)
        for text in sorted(self._exact):
            words = tuple(_TOKEN.findall(text))
            self._leaves[len(words), words[0] if words else ""].append((words, text))

    def find(self, key: str) -> str | None:
        """Return the text of the template; None where there is none."""
        if key in self._exact:
            return key
        words = tuple(_TOKEN.findall(key))
        for first in (words[0] if words else "", WordMask.WORD.value):
            for template, text in self._leaves.get((len(words), first), ()):
                if all(a == b or a == WordMask.WORD for a, b in zip(template, words, strict=True)):
                    return text
        return None


def grouped(keys: Iterable[str], *, crowded: bool = False) -> dict[str, str]:
    """Return for each masked line the text of its template.

    Args:
        keys: Masked lines.
        crowded: Whether they are too many to be kept apart: then a place where very many words were seen holds a value, whatever
            else differs.
    """
    template = {key: tuple(_TOKEN.findall(key)) for key in keys}
    by_length: dict[int, set[Words]] = defaultdict(set)
    for words in template.values():
        by_length[len(words)].add(words)
    became: dict[Words, Words] = {}
    for group in by_length.values():
        became |= _uncrowded(group) if crowded else _compared(group)
    return {key: "".join(became[words]) for key, words in template.items()}


def _uncrowded(group: set[Words]) -> dict[Words, Words]:
    """Open the places of a crowd of lines with the same first word, then compare what is left."""
    leaves: dict[str, list[Words]] = defaultdict(list)
    for words in group:
        leaves[next((word for word in words if _WORDY.search(word)), "")].append(words)
    opened: dict[Words, Words] = {}
    for leaf in leaves.values():
        places = [place for place, column in enumerate(zip(*leaf, strict=True)) if len(set(column)) > CROWD]
        opened |= {words: _with_open(words, places) for words in leaf}
    compared = _compared(set(opened.values()))
    return {words: compared[now] for words, now in opened.items()}


def _compared(group: set[Words]) -> dict[Words, Words]:
    opened = {words: words for words in group}
    for _ in range(3):
        changed = _open_places(set(opened.values()))
        if not changed:
            break
        opened = {words: changed.get(now, now) for words, now in opened.items()}
    merged = _merged(set(opened.values()))
    return {words: merged[now] for words, now in opened.items()}


def _open_places(group: set[Words]) -> dict[Words, Words]:
    """Return the lines that have places where many words were seen, all else being equal, with those places open."""
    if len(group) < 2:
        return {}
    by_open_place: dict[tuple[int, int], list[Words]] = defaultdict(list)
    for words in group:
        hashes = [_mark(place, word) for place, word in enumerate(words)]
        hash_sum = sum(hashes)
        for place, word in enumerate(words):
            if _kind(word):
                by_open_place[place, hash_sum - hashes[place]].append(words)
    places: dict[Words, set[int]] = defaultdict(set)
    for (place, _), lines in by_open_place.items():
        if len(lines) >= 2 and _holds_values([words[place] for words in lines], place <= _first_word(lines[0])):
            for words in lines:
                places[words].add(place)
    return {words: _with_open(words, at) for words, at in places.items() if _says_enough(words, at)}


@lru_cache(maxsize=1 << 16)
def _mark(place: int, word: str) -> int:
    # the hash of a text, not of a tuple: hashes of small tuples add up alike when two words change places
    return hash(f"{place} {word}")


def _first_word(words: Words) -> int:
    """Return the place of the first word or value; -1 where there is none."""
    return next((place for place, word in enumerate(words) if _kind(word)), -1)


def _says_enough(words: Words, open_places: Container[int]) -> bool:
    """Tell whether a line still says something with some places open."""
    closed = [place for place, word in enumerate(words) if place not in open_places and _WORDY.search(word)]
    return len(closed) >= 2 or closed == [_first_word(words)]


def _holds_values(words: Sequence[str], first: bool) -> bool:
    """Tell whether words seen at one place are values, not parts of what is said.

    Args:
        words: Different ones.
        first: Whether the place is that of the first word, which mostly names what is said.
    """
    valued = sum(_kind(word) is _Kind.VALUED for word in words)
    name_count = sum(_kind(word) is _Kind.NAME for word in words)
    plain = len(words) - valued - name_count
    if first:
        return plain + name_count == 0 or len(words) >= 4 * MANY
    return valued >= 2 or (2 * valued + name_count >= 3 and name_count + valued > plain) or len(words) >= MANY


def _with_open(words: Words, places: Iterable[int]) -> Words:
    at = set(places)
    return tuple(WordMask.WORD.value if place in at else word for place, word in enumerate(words))


def _merged(group: set[Words]) -> dict[Words, Words]:
    leaves: dict[str, list[Words]] = defaultdict(list)
    for words in group:
        first = next((word for word in words if _WORDY.search(word)), "")
        leaves[first].append(words)
    merged: dict[Words, Words] = {}
    for leaf in leaves.values():
        merged |= _merged_leaf(leaf)
    return merged


def _merged_leaf(leaf: list[Words]) -> dict[Words, Words]:
    clusters: list[Words] = []
    home: list[tuple[Words, int]] = []
    for words in sorted(leaf):
        near = range(max(len(clusters) - NEAR, 0), len(clusters))
        number = next((number for number in near if _alike(words, clusters[number])), len(clusters))
        if number == len(clusters):
            clusters.append(words)
        else:
            both = zip(words, clusters[number], strict=True)
            clusters[number] = tuple(a if a == b else WordMask.WORD.value for a, b in both)
        home.append((words, number))
    return {words: clusters[number] for words, number in home}


def _alike(words: Words, other_words: Words) -> bool:
    equal_weight = differ = 0.0
    places = 0
    plain = True
    for a, b in zip(words, other_words, strict=True):
        if a == b:
            equal_weight += _SIMILARITY[_kind(a)]
        elif not _kind(a) or not _kind(b):
            return False
        else:
            names = (_kind(a) > _Kind.PLAIN) + (_kind(b) > _Kind.PLAIN)
            plain = plain and not names
            places += 1
            differ += (PLAIN, 1, 0.5)[names]
    # one plain word alone makes no value: many of them would have opened the place already
    return not (plain and places == 1) and equal_weight > 0 and equal_weight >= LEAST_SIMILARITY * (equal_weight + differ)


class _Kind(IntEnum):
    """The kind of a token: a mask, a name or a plain word."""

    SIGN = 0
    """A blank or a sign."""
    PLAIN = 1
    """A word as in a sentence."""
    NAME = 2
    """A word that looks like a name."""
    VALUED = 3
    """A mask, nothing, or a word with a mask in it."""


_SIMILARITY = (0.0, 1.0, 1.0, 0.0)
"""How much a token that two lines have in common, by its kind, speaks for one template."""


@lru_cache(maxsize=1 << 15)
def _kind(word: str) -> _Kind:
    if not word or _VALUE.search(word):
        return _Kind.VALUED
    if not _WORDY.search(word):
        return _Kind.SIGN
    return _Kind.NAME if _NAME_WORD.fullmatch(word) else _Kind.PLAIN


LONGEST = 2_000
"""Bytes of a line that are looked at."""
MOST_KEYS = 20_000
"""Keys kept apart; beyond that their templates are kept in their stead, and of those the frequent ones."""
MOST_FORMS = 100_000
"""Lines, digits aside, whose key is remembered."""
MOST_EXAMPLES = 5
VERSION = 1
"""Of the JSON."""

_NO_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_MASKS = re.compile("([\x01-\x0f])")


class TemplatePiece(NamedTuple):
    """A part of a template."""

    mask: str
    """Name of the mask in small letters (`number`, `word`, `more`); empty for text that stands as it is."""
    text: str


@dataclass(frozen=True)
class Template:
    """Lines of one form."""

    text: str
    """With masks as control characters; `str()` shows them as `<number>`."""
    count: int
    examples: tuple[str, ...]
    """Whole lines that have it, cleaned, a few."""

    def __str__(self) -> str:
        return readable(self.text)

    def pieces(self) -> list[TemplatePiece]:
        """Return text and masks in turn, without empty texts."""
        parts = [part for part in _MASKS.split(self.text) if part]
        return [TemplatePiece(WordMask(part).name.lower(), "") if _MASKS.match(part) else TemplatePiece("", part) for part in parts]


class Miner:
    """Takes lines and tells their templates; bounded in memory however many lines differ."""

    def __init__(self, templates: Iterable[Template] = (), *, most_keys: int = MOST_KEYS) -> None:
        """Start with what is known already."""
        self._most_keys = most_keys
        self._key_of: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, tuple[str, ...]] = {}
        self.dropped = 0
        """Lines of rare templates that were let go of for want of room."""
        for template in templates:
            self._counts[template.text] += template.count
            self._examples.setdefault(template.text, template.examples)

    def feed(self, block: bytes) -> list[str]:
        """Take the lines of a block and return the key of each; of a blank line the empty text."""
        raw = block.removesuffix(b"\n").split(b"\n")
        forms = block.removesuffix(b"\n").translate(_NO_DIGITS).split(b"\n")
        if max(map(len, forms)) > LONGEST:
            forms = [form[:LONGEST] for form in forms]
        known_keys = list(map(self._key_of.get, forms))
        keys = [
            self._learn(form, raw[place]) if key is None else key
            for place, (key, form) in enumerate(zip(known_keys, forms, strict=True))
        ]
        self._counts.update(keys)
        if len(self._counts) > self._most_keys:
            self._condense()
        return keys

    def add(self, texts: Sequence[str]) -> list[str]:
        """Take lines as `feed` does."""
        return self.feed("\n".join(text.replace("\n", " ") for text in texts).encode("utf-8", "replace")) if texts else []

    def templates(self) -> list[Template]:
        """Return the templates, the most frequent first."""
        return self._templates(crowded=False)

    def _templates(self, *, crowded: bool) -> list[Template]:
        home = grouped((key for key in self._counts if key), crowded=crowded)
        counts: Counter[str] = Counter()
        examples: dict[str, list[str]] = {}
        for key, text in sorted(home.items()):
            counts[text] += self._counts[key]
            texts = examples.setdefault(text, [])
            texts += self._examples.get(key, ())[: MOST_EXAMPLES - len(texts)]
        return [
            Template(text, count, tuple(examples[text]))
            for text, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        ]

    def _learn(self, form: bytes, raw: bytes) -> str:
        known_key = self._key_of.get(form)
        if known_key is not None:
            return known_key
        key = masked(clean(form))
        if len(self._key_of) >= MOST_FORMS:
            self._key_of.clear()
        self._key_of[form] = key
        if key not in self._examples:
            self._examples[key] = (clean(raw[:LONGEST]),)
        return key

    def _condense(self) -> None:
        """Keep templates instead of keys, and the more frequent half where they are too many."""
        templates = self._templates(crowded=True)
        largest = templates[: self._most_keys // 2]
        self.dropped += sum(template.count for template in templates[len(largest) :])
        self._counts = Counter({template.text: template.count for template in largest})
        self._examples = {template.text: template.examples for template in largest}
        self._key_of.clear()

    def to_json(self) -> dict[str, Any]:
        """Return all that is needed to go on later."""
        rows = [{"text": t.text, "count": t.count, "examples": list(t.examples)} for t in self.templates()]
        return {"version": VERSION, "templates": rows}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Miner:
        """Return a miner that goes on where `to_json` left; one of another version starts anew."""
        return cls(templates_of(state))


def templates_of(state: Mapping[str, Any]) -> list[Template]:
    """Return the templates of a stored state; none of one of another version."""
    if state.get("version") != VERSION:
        return []
    return [Template(str(row["text"]), int(row["count"]), tuple(map(str, row["examples"]))) for row in state["templates"]]


def mined(texts: Sequence[str]) -> list[Template]:
    """Return the templates of some lines, the most frequent first."""
    miner = Miner()
    miner.add(texts)
    return miner.templates()


def homes(keys: Iterable[str], templates: Iterable[Template]) -> dict[str, str]:
    """Return for each key the text of its template, as far as there is one."""
    fitting = Fitting(template.text for template in templates)
    key_homes = {key: fitting.find(key) for key in set(keys)}
    return {key: text for key, text in key_homes.items() if text is not None}


# What a task's logs look like when all is well, and what in a failing run was never seen there.


@dataclass(frozen=True)
class Baseline:
    """The templates of the last good runs of a task."""

    runs: int
    """How many good runs are known; without one nothing counts as new."""
    seen: Mapping[str, int]
    """In how many of them a template was seen, by its text."""

    @classmethod
    def of(cls, states: Iterable[Mapping[str, Any]]) -> Baseline:
        """Return the baseline of stored states, as `Store.templates` gives them."""
        runs = [{template.text for template in templates_of(state)} for state in states]
        filled_runs = [run for run in runs if run]
        return cls(len(filled_runs), Counter(text for run in filled_runs for text in run))

    @cached_property
    def _fitting(self) -> Fitting:
        return Fitting(self.seen)

    def share(self, key: str) -> float:
        """Return the share of good runs that had the template of a masked line, 0..1."""
        fitting_key = self._fitting.find(key)
        return 0.0 if fitting_key is None else self.seen[fitting_key] / self.runs


def novelty(lines: Sequence[str], baseline: Baseline) -> list[float]:
    """Return for each line how new it is: 1 when no good run had its template, 0 when all had; 0 for blank ones.

    Without a good run nothing is known to be new, and all are 0. Pure.

    Args:
        lines: Cleaned texts.
        baseline: Of the task.
    """
    if not baseline.runs:
        return [0.0] * len(lines)
    novelty_by_key: dict[str, float] = {}
    shares: list[float] = []
    for line in lines:
        key = masked(line[:LONGEST])
        if key not in novelty_by_key:
            novelty_by_key[key] = 1.0 - baseline.share(key) if key.strip() else 0.0
        shares.append(novelty_by_key[key])
    return shares


_FRAMEWORKS = (
    ("internevo", re.compile(r"\binternlm\b|\binternevo\b|tgs \(tokens/gpu/second\)", re.IGNORECASE)),
    ("neox", re.compile(r"\bneox\b|samples/sec: [\d.]+ \| iteration", re.IGNORECASE)),
    ("megatron", re.compile(r"\bmegatron\b|pretrain_gpt|using world size: \d+, data-parallel", re.IGNORECASE)),
    ("deepspeed", re.compile(r"\[deepspeed\]|deepspeed[._/]|ds_accelerator|DeepSpeed")),
    ("nemo", re.compile(r"\[NeMo [IWED] |\bnemo\.")),
    ("torchtitan", re.compile(r"torchtitan", re.IGNORECASE)),
    ("fairseq", re.compile(r"\bfairseq|\bmetaseq")),
    ("lightning", re.compile(r"pytorch_lightning|lightning\.(?:pytorch|fabric)|GPU available: \w+")),
    ("transformers", re.compile(r"transformers[./]trainer|transformers\.|\[INFO\|trainer\.py|'loss': [\d.]+")),
    ("tensorflow", re.compile(r"\btensorflow\b|\bkeras\b")),
    ("jax", re.compile(r"\bjax\b|\bmaxtext\b")),
)
_SCRIPT = re.compile(r"(?:^|[\s/=\"'])([\w-]+\.(?:py|sh))\b|\bpython3? (?:-\w+ )*-m ([\w.]+)")
_LAUNCHERS = frozenset({"activate.sh", "setup.sh", "env.sh", "launch.py", "run.py", "launcher.py", "api.py", "distributed_c10d.py"})
_RUN = re.compile(
    r"(?:^|[-_.+ ])(?:(?:run|try|trial|attempt|exp|restart|resumed?|retry|rerun|cont(?:inue)?|seed|job|id|r|v|t|s)[-_.]?\d+"
    r"|resumed?|retry|rerun|restart(?:ed)?|\d{1,14}(?:[-_T:]\d{2,8})*|[0-9a-f]{7,40})(?=$|[-_.+ ])",
    re.IGNORECASE,
)
_HEAD = 400
"""Lines from the start of a log that tell what runs."""


def task_key(job: Job | None, lines: Iterable[str] = ()) -> str:
    """Return the key of the task: user, name without run numbers, framework, script, joined by `/`; unknown ones are `-`.

    `llama-70b_run12` and `llama-70b-run13` are one name; sizes (`70b`, `8x7b`) stay.

    Args:
        job: As the scheduler shows it; None where only a log is at hand.
        lines: Of its log, from the start; the first 400 are looked at.
    """
    head = [line for line, _ in zip(lines, range(_HEAD), strict=False)]
    user = job.user if job is not None else ""
    name = steady_name(job.name) if job is not None else ""
    script = job.spec.script if job is not None and job.spec is not None else ""
    parts = (user, name, _framework([script, *head]), _command(script.splitlines()) or _command(head))
    return "/".join(re.sub(r"[\s/]+", "_", part) or "-" for part in parts)


def steady_name(name: str) -> str:
    """Return a job's name without what changes from run to run: dates, counters, hashes."""
    before, text = "", name.strip().removesuffix(".sh").removesuffix(".sbatch")
    while text != before:  # what is left may end in another counter
        before, text = text, _RUN.sub("", text)
    return text.strip("-_.+ ").lower() or re.sub(r"\d+", "", name).strip("-_.+ ").lower()


def _framework(lines: Iterable[str]) -> str:
    count: dict[str, int] = {}
    for line in lines:
        for name, pattern in _FRAMEWORKS:
            if pattern.search(line):
                count[name] = count.get(name, 0) + 1
                break
    return max(count, key=lambda name: count[name], default="")


def _command(lines: Iterable[str]) -> str:
    """Return the script or module that is run: the last one named that is no launcher's own."""
    program = ""
    for line in lines:
        if line.startswith("#") or ("python" not in line and "srun" not in line and "torchrun" not in line and "bash" not in line):
            continue
        for script, module in _SCRIPT.findall(line):
            word = script or module
            if word not in _LAUNCHERS and not word.startswith(("torch.", "accelerate")):
                program = word
    return program.lower()
