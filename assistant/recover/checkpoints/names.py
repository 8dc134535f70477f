"""Which number in the name of a checkpoint is its step: of several the one that the name itself calls so.

A name is cut into words and numbers. A number belongs to the word before it, or to the unit right behind it. Dates, measures
(`val_loss=1.23`), sizes (`7b`) and numbers of runs or ranks are no steps. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Unit(StrEnum):
    """What the number in a name counts."""

    STEP = "step"
    EPOCH = "epoch"
    UNNAMED = "unnamed"
    """The name does not say: mostly steps."""


@dataclass(frozen=True, slots=True)
class NameNumber:
    """The number that orders a checkpoint among others of its kind."""

    number: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class _Part:
    word: str
    """Lower case; empty for a number."""
    digits: str
    """Empty for a word; with a point or an exponent it is a measure."""
    joint: str
    """What stands between it and the part before."""


SUFFIXES = (".pth.tar", ".pt.tar", ".pt", ".pth", ".npz", ".bin", ".safetensors", ".pkl", ".msgpack", ".ckpt")
SET_ASIDE = "nightshift-refused"
"""Folder inside a checkpoint folder into which refused checkpoints are moved; nothing in there is one."""
SECURED = "nightshift-secured"
"""Folder beside a checkpoint folder in which checkpoints have second names."""
OF_MEGATRON = re.compile(r"mp_rank_\d|(?:common\.pt|metadata\.json)$|.*/\.zarray$")
OF_HUGGINGFACE = re.compile(
    r"trainer_state\.json|training_args\.bin|config\.json|pytorch_model|model\S*\.safetensors|adapter_|tokenizer"
)
OF_INTERNEVO = re.compile(r"(?:model|optimizer)_\w*tp\d+|context\.pt$|\d+\.step$")
"""Files in a folder of a framework that a program of one's own, which names its folders alike, does not write."""
OUR_FOLDERS = (SET_ASIDE, SECURED)
OTHER_WEIGHTS = (".h5", ".hdf5", ".keras", ".index")
"""Suffixes of weights of Keras and TensorFlow, whose folders are mostly of no layout that is known."""
STEP_WORDS = frozenset(
    ("step steps gstep gs iter iters iteration iterations it its itr update updates upd nupdates batch batches ba ntoken").split()
)
STEP_ENDINGS = ("step", "steps", "iter", "iters", "iteration", "iterations")
EPOCH_WORDS = frozenset("ep eps epoch epochs e epo".split())
EPOCH_ENDINGS = ("epoch", "epochs")
NEUTRAL = frozenset(
    (
        "ckpt ckpts checkpoint checkpoints chkpt chkpnt cp model models snapshot snapshots save saved state states "
        "weights weight net network params param train training trainer last latest rolling resume backup unet "
        "transformer policy actor critic"
    ).split()
)
"""Words that say no more than that this is a checkpoint: a number behind one of them orders it."""
MEASURES = frozenset(
    (
        "loss losses acc accuracy ppl perplexity bleu rouge f auc score map ap iou miou dice wer cer mse mae rmse psnr "
        "ssim fid kl reward ret return metric val valid validation test eval best top lr wd bs bsz batchsize seed run "
        "exp experiment version v rev fold trial try job id node nodes gpu gpus world rank tp pp dp cp mp size dim "
        "hidden layer layers head heads seq len length ctx vocab tokens token tok samples sample hours h min minutes s "
        "sec seconds of part shard chunk fp bf int p k gpt llama bert t resnet vit"
    ).split()
)
"""Words whose numbers measure or name something else."""
SIZES = frozenset("b bn m t g gb mb kb tb tok tokens h hr hrs min mins s sec x d bit bits way shot nm px".split())
"""Units behind a number that make it a size: `7b`, `tokens84B`."""
THOUSANDS = {"k": 1_000, "m": 1_000_000}
ROLLING = frozenset(
    "last latest newest recent current curr resume autosave autoresume rolling preempt preempted preemption".split()
)
"""Words of names that are written again at each save."""
ROLLING_COMPANIONS = NEUTRAL | STEP_WORDS | EPOCH_WORDS | {"run", "full", "v", "most", "rank", "distributed"}
ONE_RUN = (
    NEUTRAL
    | ROLLING_COMPANIONS - {"run", "v"}
    | ROLLING
    | frozenset(
        (
            "g d netg netd generator discriminator encoder decoder student teacher ema lora adapter adapters optim optimizer "
            "optimizers opt scheduler sched scaler head mp best top final end initial init interrupted interrupt emergency crash "
            "crashed exception signal sigterm sigusr manual auto tmp temp partial incomplete merged consolidated sharded unsharded "
            "unwrapped converted hf global done complete"
        ).split()
    )
)
"""Words in front of a step that one run has several of: its parts, its copies, why it saved."""
SLOTS = frozenset("a b".split())
"""Two files of one run that are written in turn, where a name says no more."""
VARYING = frozenset(
    (
        "loss losses acc accuracy ppl perplexity bleu rouge f auc score map ap iou miou dice wer cer mse mae rmse psnr ssim fid "
        "kl reward ret return metric val valid validation train test eval tokens token tok samples sample hours h min minutes s "
        "sec seconds of part shard chunk rank tp pp dp cp"
    ).split()
)
"""Measures that differ from one checkpoint of a run to the next."""
MOST_CHARACTERS = 400
MOST_DIGITS = 18
COUNTS_HERE = "#"
"""Stands in a form for the number that counts, where a log has shown which one rises."""
_PART = re.compile(r"(?P<digits>\d{1,40}(?:\.\d{1,40})?(?:[eE][-+]\d{1,4})?)|(?P<word>[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z])")
_DATE = re.compile(
    r"(?<!\d)(?:19|20)\d\d[-_.]?(?:0[1-9]|1[0-2])[-_.]?(?:0[1-9]|[12]\d|3[01])(?!\d)"
    r"(?:[-_T ]{1,2}(?:[01]\d|2[0-3])(?:[-_:.hH]?[0-5]\d[-_:.mM]?[0-5]\d(?!\d)|[-_:.hH][0-5]\d(?!\d)))?"
)
_LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,18})(?!.{0,255}\d)")
_OPAQUE = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=[0-9a-f]{12,128}$)(?:\d*[a-f]+\d+){2}[0-9a-f]*", re.IGNORECASE
)
"""A digest or a UUID: its digits are no numbers, and letters and digits take turns in it. `ba000020` counts batches."""
_MODEL = re.compile(r"(?:^|[-_.])(?:vit|gpt|llama|bert|resnet|t|k|p)[-_.]?$", re.IGNORECASE)
"""Kinds of models, whose numbers are mostly sizes; behind one in a name that its own program gives stands the step."""
_SECONDS_SINCE_1970 = re.compile(r"1[3-9]\d{8}(?:\d{3})?")
_STEP_BEFORE = re.compile(r"(?:step|iter|iteration|update|batch)s?[=_-]{0,2}$", re.IGNORECASE)


def without_suffix(name: str) -> str:
    """Return a name without the suffix of a file of weights."""
    return next((name[: -len(suffix)] for suffix in SUFFIXES if name.lower().endswith(suffix)), name)


def is_opaque(name: str) -> bool:
    """Tell whether a name is a digest or a UUID and nothing else, so that it tells neither a step nor a run."""
    return _OPAQUE.fullmatch(without_suffix(name[:MOST_CHARACTERS])) is not None


def number_in(name: str) -> NameNumber | None:
    """Return the number that orders a checkpoint among its like; None where its name has none.

    A number that is called a step comes first (of several one called global, else the last), then one without a name, then an
    epoch.
    """
    if is_opaque(name):
        return None
    parts = list(_parts(without_suffix(name[:MOST_CHARACTERS])))
    steps: list[tuple[int, bool]] = []
    epochs: list[_Part] = []
    unnamed: list[tuple[int, _Part]] = []
    glued: list[int] = []
    for place, part in enumerate(parts):
        if not part.digits or not part.digits.isdecimal() or len(part.digits) > 18:
            continue
        kind, times = _kind(parts, place)
        number = int(part.digits) * times
        if kind == "step":
            steps.append((number, any(part.word == "global" for part in parts[max(0, place - 2) : place])))
        elif kind == "epoch":
            epochs.append(part)
        elif kind == "unnamed":
            unnamed.append((number, part))
        elif kind == "glued":
            glued.append(number)
    if steps:
        return NameNumber(next((number for number, whole in reversed(steps) if whole), steps[-1][0]), Unit.STEP)
    if epochs:
        # `epoch3_1000` is of step 1000; of `epoch_3_2` nobody knows what the 2 is
        longer_numbers = [number for number, part in unnamed if len(part.digits) > len(epochs[-1].digits)]
        return NameNumber(longer_numbers[-1], Unit.UNNAMED) if longer_numbers else NameNumber(int(epochs[-1].digits), Unit.EPOCH)
    plain = [number for number, _ in unnamed] or glued
    return NameNumber(plain[-1], Unit.UNNAMED) if plain else None


def name_form(name: str) -> str:
    """Return a name without what its numbers say: those of one run's checkpoints are the same."""
    return re.sub(r"\d+", "0", name)


def number_of_form(name: str, forms: Collection[str]) -> int | None:
    """Return the number in a name of a form that its program is known to give; None for other names, and where it counts no saves.

    Args:
        name: Without marks of a save that is not finished.
        forms: Patterns in which each number is a 0: `model-0.mdl`, `*_0.pt`; or whole names with a # for the one that counts.
    """
    for begin, mark, end in (form.partition(COUNTS_HERE) for form in forms):
        number = name[len(begin) : len(name) - len(end)] if mark and name.startswith(begin) and name.endswith(end) else ""
        if number.isdecimal() and len(number) <= MOST_DIGITS:
            return int(number)
    form = name_form(name)
    if not any(fnmatchcase(form, pattern) for pattern in forms):
        return None
    numbered, last = number_in(name), _LAST_NUMBER.search(without_suffix(name))
    if numbered is not None or last is None:
        return numbered.number if numbered is not None else None
    return int(last[1]) if _MODEL.search(name[: last.start()]) else None


def is_rolling(name: str) -> bool:
    """Tell whether a name is written again at each save (`epoch_latest.pt`, `last-v1.ckpt`), so that it tells no step."""
    parts = list(_parts(without_suffix(name[:MOST_CHARACTERS])))
    words = {part.word for part in parts if part.word}
    numbered = any(part.digits and (not place or parts[place - 1].word not in ("v", "rank")) for place, part in enumerate(parts))
    return bool(words & ROLLING) and words <= ROLLING | ROLLING_COMPANIONS and not numbered


def says_epoch(name: str) -> bool:
    """Tell whether a name counts epochs, as far as it says so, and no steps: `epoch_3.pt`, `epoch_latest.pt`."""
    number = number_in(name)
    if number is not None:
        return number.unit is Unit.EPOCH
    return any(_is_epoch(part.word) for part in _parts(without_suffix(name[:MOST_CHARACTERS])) if part.word)


def run_prefix(name: str) -> str:
    """Return what a name says of its run in front of its step: `lr 1e-3` of `lr1e-3_step000060.pt`; empty where it says nothing.

    Dates, words that one run has several of (`best`, `ema`), and measures that differ from save to save are left out.
    """
    if is_opaque(name):
        return ""
    parts = list(_parts(without_suffix(name[:MOST_CHARACTERS])))
    kinds = [_kind(parts, place)[0] if part.digits else "" for place, part in enumerate(parts)]
    counted = [place for place, kind in enumerate(kinds) if kind in ("step", "epoch")]
    unnamed = [place for place, kind in enumerate(kinds) if kind == "unnamed" and parts[place].digits.isdecimal()]
    glued = [place for place, kind in enumerate(kinds) if kind == "glued"]
    end = min(counted, default=None)
    if end is None:
        end = next((places[-1] for places in (unnamed, glued) if places), len(parts))
    words: list[str] = []
    for place, part in enumerate(parts[:end]):
        owner = parts[place - 1].word if place else ""
        unit = place and parts[place - 1].digits and not part.joint and part.word in SIZES
        if part.word and not unit and part.word not in ONE_RUN | VARYING and not (_is_step(part.word) or _is_epoch(part.word)):
            words.append(part.word)
        elif part.digits and kinds[place] != "unnamed" and owner not in VARYING:
            words.append(part.digits)
    return "" if set(words) <= SLOTS else " ".join(words)


def _parts(stem: str) -> Iterator[_Part]:
    stem = _DATE.sub(lambda match: match[0] if _STEP_BEFORE.search(stem, 0, match.start()) else "-", stem)
    end = 0
    for match in _PART.finditer(stem):
        digits = match["digits"] or ""
        if digits and _SECONDS_SINCE_1970.fullmatch(digits) and not _STEP_BEFORE.search(stem, 0, match.start()):
            digits = digits + ".0"  # a time, which orders nothing that is compared with steps
        yield _Part((match["word"] or "").lower(), digits, stem[end : match.start()])
        end = match.end()


def _kind(parts: Sequence[_Part], place: int) -> tuple[str, int]:
    """Return what the number at a place counts, and by how much it is to be multiplied: `iter_120k`."""
    before = parts[place - 1] if place else _Part("", "", "")
    next_part = parts[place + 1] if place + 1 < len(parts) else _Part("", "", "")
    counted = parts[place + 2] if place + 2 < len(parts) else _Part("", "", "")
    times = 1
    if next_part.word and not next_part.joint:
        if next_part.word in THOUSANDS and (_is_step(before.word) or _is_step(counted.word) or next_part.word == "k"):
            times, next_part = THOUSANDS[next_part.word], counted
        elif next_part.word in SIZES:
            return "size", 1
    own = before.word if not before.digits else ""
    if _is_step(own):
        return "step", times
    unit_behind = next_part.word and not (place + 2 < len(parts) and times == 1 and parts[place + 2].digits)
    if _is_epoch(own):
        return "epoch", times
    if unit_behind and _is_step(next_part.word):
        return "step", times
    if unit_behind and _is_epoch(next_part.word) and len(next_part.word) > 1:
        return "epoch", times
    if own in MEASURES or ("=" in parts[place].joint and own not in NEUTRAL):
        return "measure", 1
    return ("glued" if own and not parts[place].joint and own not in NEUTRAL else "unnamed"), times


def _is_step(word: str) -> bool:
    return word in STEP_WORDS or word.endswith(STEP_ENDINGS)


def _is_epoch(word: str) -> bool:
    return word in EPOCH_WORDS or word.endswith(EPOCH_ENDINGS)
