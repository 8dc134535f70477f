"""The linear ranker, a `Ranker`: it judges one line at a time by hashed words and pieces of words; its training and lessons.

Its file is in the safetensors layout (eight bytes of length, a JSON header, raw numbers), so nothing in it is ever executed. The
header names the version of the features, the classes, the seed and the digest of the training data. It is trained by logistic
regression with Adagrad, in NumPy, to the same bytes for the same data and seed, from every example of the knowledge base and from
wordings with their slots filled in. Words are dropped at random from copies of each line, so that no single word is leant on.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.content.reading import Wordings, filters, knowledge_file, wordings
from assistant.content.reasons import Reason, Role, reasons
from assistant.errors import ContentError
from assistant.llm.features import DIMS, codes_of, places, places_of, words_of
from assistant.output_files import output_folder, write_output
from assistant.ports import LineScore
from assistant.records import LearnedRule, RuleKind

if TYPE_CHECKING:
    import numpy as np

    Floats = np.ndarray[Any, np.dtype[np.float32]]


VERSION = 1
"""Of the features and the layout: a file of another version is refused."""
FILE = "ranker.safetensors"
NONE = "none"
"""The class of lines that speak for no reason."""
LARGEST_BYTES = 16 << 20
_DTYPES = {"I8": "int8", "F32": "<f4", "F16": "<f2"}


@dataclass(frozen=True)
class Weights:
    """A trained model: one column for each class, one more for how likely the line is the root."""

    classes: tuple[str, ...]
    """The reasons and `none`, in the order of the columns."""
    table: np.ndarray[Any, np.dtype[np.int8]]
    """DIMS rows, a column for each class and one for the root."""
    scale: np.ndarray[Any, np.dtype[np.float32]]
    """What one unit of a column is worth."""
    bias: np.ndarray[Any, np.dtype[np.float32]]
    rarity: np.ndarray[Any, np.dtype[np.float32]]
    """How much each place weighs: rare ones more."""
    about: Mapping[str, str]
    """Seed, digest and counts of the training data."""


class LinearRanker:
    """Ranks lines by a linear model; needs NumPy only."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.name = f"linear-{VERSION}-{weights.about.get('digest', '')[:8]}"

    def rank(self, lines: Sequence[str]) -> Sequence[LineScore]:
        """Return a score for each line, judged without the others."""
        return [self._score(places(line)) for line in lines]

    def _score(self, places: Sequence[int]) -> LineScore:
        import numpy as np

        weights = self.weights
        if not places:
            return LineScore(0.0, dict.fromkeys(sorted(set(weights.classes) - {NONE})[:3], 0.0))
        weight = weights.rarity[places]
        weight = weight / max(float(np.sqrt((weight * weight).sum())), 1e-9)
        logits = (weight @ weights.table[places].astype(np.float32)) * weights.scale + weights.bias
        shares = np.exp(logits[:-1] - logits[:-1].max())
        shares = shares / shares.sum()
        order = [int(place) for place in np.argsort(-shares, kind="stable") if weights.classes[place] != NONE]
        root = 1.0 / (1.0 + float(np.exp(-min(max(float(logits[-1]), -30.0), 30.0))))
        # a line that speaks for no reason is no root, whatever the other head says
        root *= 1.0 - float(shares[weights.classes.index(NONE)])
        return LineScore(root, {weights.classes[place]: float(shares[place]) for place in order})


def file_of(site: Path | None = None) -> Path:
    """Return the file that counts: the site's where there is one, else the shipped one."""
    return knowledge_file(FILE, site)


def load_ranker(path: Path) -> LinearRanker:
    """Read a trained file.

    Raises:
        ContentError: It is missing, no trained file, broken, or of another version.
    """
    import numpy as np

    header, data = _parts(path)
    about = header.pop("__metadata__", {})
    if about.get("version") != str(VERSION):
        raise ContentError(f"{path}: is of version {about.get('version')!r}, this Nightshift reads {VERSION}; {_REMEDY}")
    try:
        arrays = {name: _array(np, data, entry) for name, entry in header.items()}
        classes = tuple(json.loads(about["classes"]))
        weights = Weights(classes, arrays["table"], arrays["scale"], arrays["bias"], arrays["rarity"].astype(np.float32), about)
    except (KeyError, TypeError, ValueError) as error:
        raise ContentError(f"{path}: is broken ({error}); {_REMEDY}") from error
    shapes = (weights.table.shape, weights.scale.shape, weights.bias.shape, weights.rarity.shape)
    width = len(classes) + 1
    if shapes != ((DIMS, width), (width,), (width,), (DIMS,)) or len(set(classes)) < 4 or NONE not in classes:
        raise ContentError(f"{path}: its tables have shapes {shapes}, which do not fit {len(classes)} classes; {_REMEDY}")
    if not all(np.isfinite(array).all() for array in (weights.scale, weights.bias, weights.rarity)):
        raise ContentError(f"{path}: holds numbers that are none; {_REMEDY}")
    return LinearRanker(weights)


_REMEDY = "train one with: nightshift model train-ranker"


def _parts(path: Path) -> tuple[dict[str, Any], bytes]:
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise ContentError(f"{path}: is larger than {LARGEST_BYTES >> 20} MiB; {_REMEDY}")
        raw = path.read_bytes()
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror}; {_REMEDY}") from error
    try:
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + length])
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise ContentError(f"{path}: is no trained file ({error}); {_REMEDY}") from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__"), dict):
        raise ContentError(f"{path}: is no trained file of Nightshift; {_REMEDY}")
    return header, raw[8 + length :]


def _array(np: Any, data: bytes, entry: Mapping[str, Any]) -> Any:
    start, end = entry["data_offsets"]
    return np.frombuffer(data[start:end], dtype=_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def save_ranker(weights: Weights, path: Path) -> None:
    """Write a trained file; the same weights give the same bytes."""
    import numpy as np

    tensors = {
        "table": ("I8", weights.table.astype("int8")),
        "scale": ("F32", weights.scale.astype("<f4")),
        "bias": ("F32", weights.bias.astype("<f4")),
        "rarity": ("F16", weights.rarity.astype("<f2")),
    }
    about = {**weights.about, "version": str(VERSION), "classes": json.dumps(list(weights.classes))}
    header: dict[str, Any] = {"__metadata__": dict(sorted(about.items()))}
    blocks, at = [], 0
    for name, (kind, array) in tensors.items():
        block = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(block)]}
        blocks.append(block)
        at += len(block)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    output_folder(path.parent)
    write_output(path, struct.pack("<Q", len(text)) + text + b"".join(blocks))


class TrainingExample(NamedTuple):
    """A line to learn from."""

    text: str
    reason: str
    """A reason, or `none`."""
    root: float
    """0..1: how likely such a line is what an expert would cite."""
    group: str = ""
    """Lines of one group are one wording: they are held out together."""


@dataclass(frozen=True)
class TrainingTerms:
    """How to train."""

    seed: int = 0
    passes: int = 6
    copies: int = 2
    """Copies of each line with words left out."""
    dropped: float = 0.25
    """Share of the words that a copy lacks."""
    rate: float = 0.5
    decay: float = 2e-5
    root_decay: float = 1e-3
    """More, for what makes a root line is less a matter of single words."""
    batch: int = 64


def train(examples: Sequence[TrainingExample], terms: TrainingTerms | None = None) -> Weights:
    """Return a model of the examples."""
    import numpy as np

    terms = terms or TrainingTerms()
    classes = (*sorted({example.reason for example in examples} - {NONE}), NONE)
    rows, labels, roots = _rows(examples, classes, terms)
    rarity = _rarity(rows)
    columns = len(classes) + 1
    weight, bias = np.zeros((DIMS, columns), np.float32), np.zeros(columns, np.float32)
    moved, moved_bias = np.full((DIMS, 1), 1e-3, np.float32), np.full(columns, 1e-2, np.float32)
    share = np.bincount(labels, minlength=len(classes)).astype(np.float32)
    balance = np.sqrt(share.mean() / np.maximum(share, 1.0))
    decay = np.array([terms.decay] * len(classes) + [terms.root_decay], np.float32)
    chance = np.random.default_rng(terms.seed)
    for pass_number in range(terms.passes):
        rate = terms.rate * (1.0 - 0.8 * pass_number / terms.passes)
        for batch in np.array_split(chance.permutation(len(rows)), max(len(rows) // terms.batch, 1)):
            active, values = _dense([rows[int(place)] for place in batch], rarity)
            wrong = _wrong(values @ weight[active] + bias, labels[batch], roots[batch], balance)
            slope = values.T @ wrong + len(batch) * decay * weight[active]
            moved[active] += (slope * slope).mean(axis=1, keepdims=True)
            weight[active] -= rate * slope / np.sqrt(moved[active])
            flat = wrong.sum(axis=0)
            moved_bias += flat * flat
            bias -= 0.3 * rate * flat / np.sqrt(moved_bias)
    return _packed(weight, bias, rarity, classes, _about(examples, terms))


def _rows(examples: Sequence[TrainingExample], classes: Sequence[str], terms: TrainingTerms) -> tuple[list[Any], Any, Any]:
    """Return the places, the class and the root share of every example and its copies."""
    import numpy as np

    chance = random.Random(terms.seed)
    number = {name: place for place, name in enumerate(classes)}
    rows: list[Any] = []
    labels: list[int] = []
    roots: list[float] = []
    for example in examples:
        words, codes = words_of(example.text), codes_of(example.text)
        for copy in range(1 + terms.copies):
            kept_words = words if not copy else [word for word in words if chance.random() >= terms.dropped]
            places = places_of(kept_words, codes if not copy or chance.random() >= terms.dropped else ())
            if places:
                rows.append(np.array(places, np.int32))
                labels.append(number[example.reason])
                roots.append(example.root)
    return rows, np.array(labels), np.array(roots, np.float32)


def _rarity(rows: Sequence[Any]) -> Floats:
    """Return the weight of each place: less for what stands in many lines."""
    import numpy as np

    count = np.bincount(np.concatenate(rows), minlength=DIMS)
    rarity: Floats = (np.log((1 + len(rows)) / (1 + count)) / np.log(1 + len(rows))).astype(np.float16).astype(np.float32)
    return rarity


def _dense(rows: Sequence[Any], rarity: Floats) -> tuple[Any, Floats]:
    """Return the places that a batch takes and its rows over those only, each of length 1."""
    import numpy as np

    columns, positions = np.unique(np.concatenate(rows), return_inverse=True)
    values = np.zeros((len(rows), len(columns)), np.float32)
    line = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    values[line, positions] = rarity[columns[positions]]
    values /= np.maximum(np.sqrt((values * values).sum(axis=1, keepdims=True)), 1e-9)
    return columns, values


def _wrong(logits: Floats, labels: Any, roots: Floats, balance: Floats) -> Floats:
    """Return what each output of a batch is wrong by: a softmax over the classes, and a yes or no for the root."""
    import numpy as np

    shares = np.exp(logits[:, :-1] - logits[:, :-1].max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1.0
    shares *= balance[labels][:, None]
    root = 1.0 / (1.0 + np.exp(-logits[:, -1:])) - roots[:, None]
    errors: Floats = np.concatenate((shares, root), axis=1).astype(np.float32)
    return errors


def _packed(weight: Floats, bias: Floats, rarity: Floats, classes: tuple[str, ...], about: dict[str, str]) -> Weights:
    """Return the model with its table in whole numbers of eight bits."""
    import numpy as np

    scale = (np.abs(weight).max(axis=0) / 127.0).astype(np.float32)
    table = np.rint(weight / np.maximum(scale, 1e-12)).astype(np.int8)
    return Weights(classes, table, scale, bias.astype(np.float32), rarity, about)


def _about(examples: Sequence[TrainingExample], terms: TrainingTerms) -> dict[str, str]:
    digest = hashlib.sha256(json.dumps(sorted(examples)).encode()).hexdigest()
    return {"digest": digest, "seed": str(terms.seed), "lines": str(len(examples))}


class CrossValidation(NamedTuple):
    """Figures of a cross-validation."""

    lines: int
    reason: float
    """Share of root lines of unseen wordings whose reason is right."""
    third: float
    """Share with the right reason among the first three."""
    root: float
    """Share of excerpts of unseen lines in which the root line came first."""
    by_reason: dict[str, tuple[int, float]]
    """Lines and share right of each reason."""


def cross_validate(examples: Sequence[TrainingExample], folds: int = 5, terms: TrainingTerms | None = None) -> CrossValidation:
    """Train without a part of the wordings and judge those, in turn."""
    terms = terms or TrainingTerms()
    right: dict[str, list[int]] = {}
    third = won = fights = 0
    for held_out, training_part in parted(examples, folds, terms.seed):
        ranker = LinearRanker(train(training_part, terms))
        scores = ranker.rank([example.text for example in held_out])
        quiet = [score.root for example, score in zip(held_out, scores, strict=True) if example.root == 0]
        chance = random.Random(terms.seed)
        for example, score in zip(held_out, scores, strict=True):
            if example.root < 0.5:
                continue
            first = list(score.reasons)[:3]
            right.setdefault(example.reason, []).append(first[0] == example.reason)
            third += example.reason in first
            fights += 1
            won += score.root > max(chance.choices(quiet, k=8), default=0.0)
    total = sum(map(len, right.values()))
    by_reason = {name: (len(marks), sum(marks) / len(marks)) for name, marks in sorted(right.items())}
    share = sum(map(sum, right.values())) / max(total, 1)
    return CrossValidation(total, share, third / max(total, 1), won / max(fights, 1), by_reason)


def parted(
    examples: Sequence[TrainingExample], folds: int, seed: int
) -> Iterator[tuple[list[TrainingExample], list[TrainingExample]]]:
    """Yield held-out examples and the rest, so that each wording is held out once as a whole."""
    groups = sorted({example.group or example.text for example in examples})
    random.Random(seed).shuffle(groups)
    fold = {group: place % folds for place, group in enumerate(groups)}
    for number in range(folds):
        yield (
            [example for example in examples if fold[example.group or example.text] == number],
            [example for example in examples if fold[example.group or example.text] != number],
        )


_ROOT = {Role.ROOT: 1.0, Role.SYMPTOM: 0.6, Role.CONFIRMATION: 0.4, Role.CASCADE: 0.2}
"""How likely a line of each role is what an expert cites; lines of the other roles speak for no reason."""
_KINDS = {"root": 1.0, "symptom": 0.6}
_SLOT = re.compile(r"\{(\w+)\}")
_WORDS = (
    "hidden_states num_layers rope_scaling mask buckets router state vocab offsets corpus alpha default llama shard_index".split()
)
_MODULES = "flash_attn apex deepspeed xformers transformer_engine nvfuser tokenizers mylib.models einops triton".split()
_CLASSES = "LlamaForCausalLM GPTModel Trainer DistributedOptimizer DataArgs MoELayer T5Stack ParallelMLP".split()
_PATHS = ("/mnt/data/runs/exp7/step_1200", "/home/ada/llm/train.py", "/lustre/corpora/web/part-0041", "/opt/app/config.yaml")
_HOSTS = ("node017", "gpu-12", "nid001182", "worker3.cluster.local", "h100-a-07", "ip-10-0-3-17")
_FILLS: dict[str, tuple[str, ...]] = {
    "word": tuple(_WORDS),
    "mod": tuple(_MODULES),
    "cls": tuple(_CLASSES),
    "path": _PATHS,
    "host": _HOSTS,
    "url": ("https://hub.example.org/api/v2/items", "http://10.3.0.4:9000/bucket", "https://tracker.corp.example:8443/runs"),
    "ip": ("10.12.4.7", "172.16.0.33", "192.168.81.5"),
    "pci": ("0000:c1:00", "0000:18:00.0", "0008:01:00"),
    "date": ("2026-02-11T07:24:57", "2025-10-03T22:01:10"),
    "time": ("07:24:57", "22:01"),
}
_MESSAGES = ("{word}", "{word} is not valid for {word}", "could not finish {word} ({n})", "step {n}: {word} of {path} failed")
"""What may follow an exception class of which only the name is known."""


def lessons(
    site: Path | None = None,
    learned: Iterable[LearnedRule] = (),
    confirmed: Iterable[tuple[str, str]] = (),
    *,
    seed: int = 0,
) -> list[TrainingExample]:
    """Return everything that can be learned from, each line once, in the same order for the same content.

    Args:
        site: Folder of the site's own content.
        learned: Rules that the store has learned since; only signatures that count are used.
        confirmed: Lines of confirmed incidents, each with the reason that was found in the end.
        seed: Of what fills the slots.

    Raises:
        ContentError: A file is malformed.
    """
    chance = random.Random(seed)
    examples = [
        *(example for entry in wordings(site).values() for example in _of_wordings(entry, chance)),
        *(example for reason in reasons(site).values() for example in _of_reason(reason, chance)),
        *(TrainingExample(line, NONE, 0.0, entry.id) for entry in filters(site) for line in entry.examples),
        *(
            TrainingExample(line, rule.of, 1.0, rule.id)
            for rule in learned
            if rule.kind is RuleKind.SIGNATURE and rule.state.counts
            for line in rule.examples
        ),
        *(
            TrainingExample(line, reason, 1.0, line)
            for line, reason in confirmed
            if reason in reasons(site) and reason != "unknown"
        ),
    ]
    return list({example.text: example for example in examples}.values())


def _of_wordings(entry: Wordings, chance: random.Random) -> Iterator[TrainingExample]:
    for kind, root in _KINDS.items():
        for place, line in enumerate(entry.lines(kind)):
            yield TrainingExample(filled(line, chance), entry.reason, root, f"{entry.reason}/{kind}/{place}")
    for place, line in enumerate(entry.lines("quiet")):
        yield TrainingExample(filled(line, chance), NONE, 0.0, f"{entry.reason}/quiet/{place}")


def _of_reason(reason: Reason, chance: random.Random) -> Iterator[TrainingExample]:
    for signature in reason.signature:
        root = _ROOT.get(signature.role, 0.0) if reason.name != "unknown" else 0.0
        for line in signature.examples:
            yield TrainingExample(line, reason.name if root else NONE, root, signature.id)
    for herring in reason.herring:
        for line in herring.examples:
            yield TrainingExample(line, NONE, 0.0, herring.id)
    for name in reason.exceptions if reason.name != "unknown" else ():
        for message in _MESSAGES[:2]:
            yield TrainingExample(f"{name}: {filled(message, chance)}", reason.name, 1.0, f"class {name}")


def filled(line: str, chance: random.Random) -> str:
    """Return a wording with something plausible in each of its slots; what is no slot of ours stays as it is."""
    return _SLOT.sub(lambda match: _fill(match.group(1), match.group(0), chance), line)


def _fill(slot: str, as_it_is: str, chance: random.Random) -> str:
    if slot == "n":
        return str(chance.choice((0, 1, 3, 7, 12, 64, 511, 4096, 81920, 734003)))
    if slot == "job":
        return str(chance.randint(10_000, 9_999_999))
    if slot == "hex":
        return f"{chance.getrandbits(40):010x}"
    return chance.choice(_FILLS[slot]) if slot in _FILLS else as_it_is
