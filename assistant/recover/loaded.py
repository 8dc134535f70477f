"""Read off a job's log which checkpoint it loaded and at which step it went on, and compare that with the checkpoint chosen. Pure.

Give only lines of the attempt in question: a file that several attempts append to shows older loads as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path, PurePosixPath

from assistant.logs.lines import Line
from assistant.logs.metrics import MetricReader
from assistant.records import Checkpoint
from assistant.recover.checkpoints.layout import could_be_checkpoint, counts_steps, step_in_name
from assistant.recover.checkpoints.secured import folder_of
from assistant.redact import head_of

MOST_LINES = 200_000
"""Lines that are looked through: a load stands at the beginning of an attempt."""
MOST_LOADS = 200
"""Lines kept: each rank may print one."""
MOST_STEPS = 3
"""Steps needed to know how often the job logs one."""
SLACK_STEPS = 5
"""Progress bars and lines of metrics are written by two streams that overtake each other."""
LONGEST_LINE = 1500
MOST_CANDIDATES = 1000
"""Lines that may tell of a load and are looked at closely; a hostile log shall not keep a watch busy."""
BAR = re.compile(r"%\|[^|]{0,400}\|\s{0,8}\d{1,15}/\d{1,15} \[")
_PATH = r"[`'\"(]?(?:local:|file://|path=)?(?P<path>(?:/|\./|\.\./|[\w.-]{1,255}/)[^\s`'\"),;\]]{1,4000})"
_NOUN = r"(?:checkpoints?|ckpts?|(?:training |optimizer )?states?|snapshots?|model(?: weights| states?)?|weights|training|run)"
_VERB = r"(?:load(?:ing|ed)?|restor(?:e|ing|ed)|resum(?:e|ing|ed)|continu(?:e|ing|ed)|recover(?:ing|ed))"
_STEP_AFTER = r"(?:.{0,80}?(?:\b(?:step|iter(?:ation)?)\b\D{0,4}|@ (?=\d{1,15} updates))(?P<step>\d{1,15}))?"
LOADS = (
    # Megatron-LM: " loading distributed checkpoint from /ckpt at iteration 40", "successfully loaded checkpoint from /ckpt [ t 1/1"
    re.compile(rf"load(?:ing|ed) (?:\w+ ){{0,3}}checkpoint from {_PATH}{_STEP_AFTER}", re.IGNORECASE),
    # Hugging Face Trainer, torchtitan
    re.compile(r"continuing training from global step (?P<step>\d{1,15})", re.IGNORECASE),
    re.compile(r"training starts at step (?P<next>\d{1,15})", re.IGNORECASE),
    re.compile(r"loading the checkpoint at step (?P<step>\d{1,15})", re.IGNORECASE),
    # Lightning, NeMo, DeepSpeed, accelerate, Composer, Orbax, nanoGPT and most others: a verb, a noun, and a path or a step
    re.compile(rf"\b{_VERB}\b(?: \S{{1,40}}){{0,6}}? (?:from|at|in|path|of)\b:? {_PATH}{_STEP_AFTER}", re.IGNORECASE),
    re.compile(
        rf"\b{_VERB}\b[^/\n]{{0,60}}?\b(?:global[ _])?(?:step|iter(?:ation)?)\b\D{{0,4}}"
        r"(?P<step>\d{1,15})(?![\d.]{0,20}[smh%])",
        re.IGNORECASE,
    ),
    re.compile(rf"\b{_VERB}(?: \S{{1,40}}){{0,2}}? {_NOUN}:? {_PATH}{_STEP_AFTER}", re.IGNORECASE),
    # "Restored runs/a/checkpoints/ckpt_00000060.npz at step 60"
    re.compile(
        rf"\b{_VERB}:? (?=\S{{0,1400}}(?:checkpoint|ckpt|step|iter|epoch|snapshot)\S{{0,60}}\d){_PATH}{_STEP_AFTER}", re.IGNORECASE
    ),
    re.compile(
        rf"\b{_VERB}\b[^/\n]{{0,40}}?(?P<path>[\w.=-]{{0,80}}(?:checkpoint|ckpt|step|iter|epoch)[\w.=-]{{0,40}}\d[\w.=-]{{0,60}})",
        re.IGNORECASE,
    ),
)
"""How programs say that they loaded a checkpoint; the first that matches counts."""
STEP_BEFORE = re.compile(r"\b(?:global[ _])?(?:step|iter(?:ation)?)\b\D{0,4}(\d{1,15})(?!\d)", re.IGNORECASE)
ABOUT = re.compile(rf"\b{_VERB}\b|training starts at step", re.IGNORECASE)
SUBJECT = re.compile(
    r"checkpoint|ckpt|resum|restor|\bstates?\b|global[ _]step|iter|\bstep|continu|starts at|snapshot|epoch=", re.IGNORECASE
)
NOT_A_LOAD = re.compile(
    r"dataset|data from|tokeni[sz]er|vocab|corpus|config(?:uration)? (?:file|from)|best model|pretrained|modules?\b.{0,20}from|"
    r"\bwill (?:be )?(?:load|resum)|to (?:resume|load|restore|continue) |if you want|could not|cannot|can't|unable|"
    r"no (?:such )?(?:checkpoint|ckpt)|not found|\bargument|--\w+|extension|libcuda|nccl",
    re.IGNORECASE,
)
"""Lines that load something else, load nothing, or speak of loading later."""
LOADS_NOTHING = re.compile(r"failed|error|saved|saving|kernel", re.IGNORECASE)
"""The same, where it is not the name of a folder: `resuming from /runs/failed_restarts/step_40`."""
PATH = re.compile(r"\S*/\S*")
HINT = re.compile(
    r"load|restor|resum|continu|recover|scratch|random|checkpoint|ckpt|metadata|latest file|starts? at|from step", re.IGNORECASE
)
FRESH = re.compile(
    r"will start from random|from scratch\b|could not find the metadata file|unable to find latest file|"
    r"(?:train|start|begin|initiali[sz])\w{0,10}(?: \S{1,30}){0,5}? from "
    r"(?:the (?:start|beginning)|zero|(?:step|iteration|epoch) 0)\b|"
    r"no (?:\w+ )?(?:checkpoints?|ckpt)(?: was| were| has been)? (?:found|exists?|available|in\b|at\b|to (?:resume|load))|"
    r"no (?:\w+ )?(?:checkpoints?|ckpt)(?: (?:in|at|under) \S{1,4000})? (?:found|exists?)|^no (?:\w+ )?(?:checkpoints?|ckpt)\b",
    re.IGNORECASE,
)
"""How programs say that they begin with random weights."""
ABOUT_TRAINING = re.compile(
    r"check-?points?|ckpt|random|\btrain|\bmodel|weights|metadata file|latest file|(?:step|iteration|epoch) 0\b"
    r"|\b(?:start|begin|run)\w{0,5} from scratch",
    re.IGNORECASE,
)
"""A line that says "from scratch" of the training, and not of an index or a vocabulary."""


@dataclass(frozen=True, slots=True)
class LoadLine:
    """One line by which a job says that it loaded a checkpoint."""

    number: int
    """1-based, as in the lines given."""
    text: str
    path: str
    """As written, relative ones too; empty where the line names only a step."""
    step: int | None
    """Step of the checkpoint; None where neither the line nor the path's name tells it."""


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """What an attempt loaded and where it went on, as far as its log tells."""

    loads: tuple[LoadLine, ...]
    """In order; only those before the first training step."""
    fresh_line: str
    """The line by which the job says that it begins at the start; empty where none does, or where a load follows it."""
    first_step: int | None
    """First training step that was logged; None while there is none."""
    interval: int | None
    """Steps between the first two that were logged; None with fewer than two."""
    exact: bool = True
    """Whether the lines name their steps; else they were counted from a progress bar, which may be off by `SLACK_STEPS`."""
    by_bar: bool = False
    """Whether the first step stands in a progress bar, which may count only what is left to do."""

    @property
    def silent(self) -> bool:
        """Whether the log tells nothing at all yet."""
        return not self.loads and not self.fresh_line and self.first_step is None


class LoadVerdict(StrEnum):
    """How what was loaded compares with what was chosen."""

    CHOSEN = "chosen"
    """The job loaded the chosen checkpoint, or began at the start as chosen."""
    OTHER = "other"
    """It loaded another one."""
    FROM_START = "from_start"
    """It began at the start although a checkpoint was chosen."""
    UNKNOWN = "unknown"
    """The log does not tell yet."""


@dataclass(frozen=True, slots=True)
class LoadComparison:
    """A verdict with its sentence for people."""

    verdict: LoadVerdict
    note: str

    @property
    def differs(self) -> bool:
        """Whether the job went on from something else than was chosen: never a recovery."""
        return self.verdict in (LoadVerdict.OTHER, LoadVerdict.FROM_START)


def loaded_checkpoint(lines: Iterable[Line]) -> LoadedCheckpoint:
    """Return which checkpoint an attempt says that it loaded, and its first training steps.

    Args:
        lines: Lines of this attempt only, in order, from its beginning; of at most `MOST_LINES` something is read.
    """
    reader = MetricReader()
    loads: list[LoadLine] = []
    fresh: list[tuple[int, str]] = []
    bars: set[int] = set()  # numbers of lines with a progress bar
    candidates = 0
    own_steps: set[int] = set()  # numbers of lines that name their step themselves
    for count, line in enumerate(lines):
        if count >= MOST_LINES:
            break
        text = line.text[:LONGEST_LINE]
        before = len(reader.points)
        reader.take(line)
        if BAR.search(text):
            bars.add(line.number)
        newest = reader.points[-1] if reader.points else None
        if newest is not None and newest.line == line.number and names_own_step(text, newest.step):
            # a line before it, too, that is known for a step by this one
            own_steps |= {line.number, *(point.line for point in reader.points[before:])}
        if len(reader.points) > MOST_STEPS or candidates >= MOST_CANDIDATES or not HINT.search(text):
            continue
        candidates += 1
        load = _load_line(line.number, text)
        if load is not None and len(loads) < MOST_LOADS:
            loads.append(load)
        elif load is None and len(fresh) < MOST_LOADS and FRESH.search(text) and ABOUT_TRAINING.search(text):
            fresh.append((line.number, head_of(text.strip(), 300)))
    # a step that was counted on is right only once a progress bar has told where the count began, or where its lines prove it
    by_bar = reader.settle() or (bool(bars) and reader.counted_on <= reader.anchored + 1)
    points = [point for point in reader.points if point.line in own_steps or (by_bar and not point.counted)]
    steps = list(dict.fromkeys(point.step for point in points))[:MOST_STEPS]
    if len(steps) == MOST_STEPS and steps[0] == 0 and steps[1] > steps[2] - steps[1] > 0:
        steps = steps[1:]  # an evaluation before the training, logged as step 0
    if len(steps) == MOST_STEPS and steps[1] < steps[2] < steps[0]:
        steps = steps[1:]  # the training begins below it: the best step so far, how many are meant, where another had ended
    gaps = [after - before for before, after in pairwise(steps) if after > before]
    exact = not points or points[0].line in own_steps
    first_line = reader.points[0].line if reader.points else None
    loads_before = [load for load in loads if first_line is None or load.number < first_line]
    last_load = loads_before[-1].number if loads_before else 0
    fresh_texts = [text for number, text in fresh if number > last_load and (first_line is None or number < first_line)]
    first, interval = steps[0] if steps else None, min(gaps) if gaps else None
    return LoadedCheckpoint(
        tuple(loads_before), fresh_texts[0] if fresh_texts else "", first, interval, exact, bool(points) and points[0].line in bars
    )


def names_own_step(text: str, step: int) -> bool:
    """Tell whether a line names its step itself, and does not only show a loss.

    Where two streams meet in the middle of a line, a bar stands before the metrics that it does not belong to.
    """
    if "%|" in text and (begin := text.find("{'")) > 0:
        text = text[begin:]
    return (
        re.search(rf"(?:step|iter\w{{0,10}}|batch|update|\|)\D{{0,12}}0*{step}(?![\d.])|\b{step}/\d", text, re.IGNORECASE)
        is not None
    )


def _load_line(number: int, text: str) -> LoadLine | None:
    if not ABOUT.search(text) or not SUBJECT.search(text) or NOT_A_LOAD.search(text) or FRESH.search(text):
        return None
    if LOADS_NOTHING.search(PATH.sub(" ", text)):
        return None
    for pattern in LOADS:
        match = pattern.search(text)
        if match is None:
            continue
        groups = match.groupdict()
        path = (groups.get("path") or "").rstrip("./:")
        step = groups.get("step")
        step_found = int(step) if step else int(groups["next"]) - 1 if groups.get("next") else None
        if (
            step_found is None
            and path
            and (step_before := STEP_BEFORE.search(text[match.start() : max(text.find(path), 0)])) is not None
        ):
            step_found = int(step_before[1])  # `restored step 40 from …/t5-xl`: the words tell it, not a name with a number
        step_found = step_found if step_found is not None else _step_of(path)
        if path or step_found is not None:
            return LoadLine(number, head_of(text.strip(), 300), path, step_found)
    return None


def _step_of(path: str) -> int | None:
    """Return the step that the last parts of a path name: `…/global_step40/mp_rank_00_model_states.pt` is of step 40."""
    *above, name = PurePosixPath(path).parts[-3:] or ("",)
    if (step := step_in_name(name)) is not None:
        return step
    # a folder further up counts only where it is a checkpoint: `/tmp/trainer.60/ckpt/last.pt` has the job's id in its path
    folders = [part for part in reversed(above) if could_be_checkpoint(part, folder=True)]
    return next((step for part in folders if (step := step_in_name(part)) is not None), None)


def goes_on_from(load: LoadLine, loaded: LoadedCheckpoint) -> bool:
    """Tell whether the first step that was logged is the one behind the step of a load."""
    first, step = loaded.first_step, load.step
    if first is None or step is None:
        return False
    slack = 0 if loaded.exact else SLACK_STEPS
    return step - slack <= first <= step + (loaded.interval or 1) + 1 + slack


def own_load(
    loaded: LoadedCheckpoint, folder_of: Callable[[str], Collection[Path]], folders: Collection[Path], steps: Collection[int]
) -> LoadLine | None:
    """Return the line that proves that an attempt went on from a checkpoint of its own run; None where none does.

    A base model lies elsewhere, and a program that counts anew says step 0 or begins below the step that it loaded.

    Args:
        loaded: Of that attempt.
        folder_of: Where a path of a line may lie, as absolute paths.
        folders: Those that the run saves to.
        steps: Of the checkpoints that lie there.
    """
    first, slack = loaded.first_step, 0 if loaded.exact else SLACK_STEPS
    if any(load.step == 0 for load in loaded.loads) or (first is not None and first <= 1):
        return None
    own = [load for load in loaded.loads if any(path.is_relative_to(folder) for path in folder_of(load.path) for folder in folders)]
    if own:  # a line without a folder may tell the step of what another line names
        with_step = [load for load in loaded.loads if load.step and (load in own or "/" not in load.path)]
        counted_on = with_step and (first is None or first >= (with_step[-1].step or 0) - slack)
        return with_step[-1] if counted_on else None
    nameless = [load for load in loaded.loads if "/" not in load.path and load.step in steps and goes_on_from(load, loaded)]
    return nameless[-1] if nameless else None


def compare_loaded(checkpoint: Checkpoint | None, loaded: LoadedCheckpoint) -> LoadComparison:
    """Return whether a job went on from the checkpoint that was chosen.

    Lines that name the chosen checkpoint or another one of its folder count first, then steps that a line names, then the first
    step that was logged. Nothing is concluded from silence.

    Args:
        checkpoint: What the restart was to go on from; None when it was to begin at the start.
        loaded: From `loaded_checkpoint`, of the new attempt.
    """
    if checkpoint is None:
        return _compare_fresh(loaded)
    by_lines = _by_lines(checkpoint, loaded)
    by_steps = _by_first_step(checkpoint, loaded)
    if by_lines is None or (by_steps.differs and not by_lines.differs):
        return by_steps
    return by_lines


def _compare_fresh(loaded: LoadedCheckpoint) -> LoadComparison:
    own = [load for load in loaded.loads if load.step]
    if own and (loaded.first_step is None or loaded.first_step > 1):
        return LoadComparison(LoadVerdict.OTHER, f"it was to begin at the start and loaded step {own[-1].step}: {own[-1].text!r}")
    if loaded.first_step is None and not loaded.fresh_line:
        return LoadComparison(LoadVerdict.UNKNOWN, "the log does not tell yet where it began")
    return LoadComparison(LoadVerdict.CHOSEN, "it began at the start, as chosen")


def _by_lines(checkpoint: Checkpoint, loaded: LoadedCheckpoint) -> LoadComparison | None:
    """Return what the job's own words say; None where they name no checkpoint that can be compared."""
    expectation = f"chosen was {checkpoint.path.name} (step {checkpoint.step})"
    if loaded.fresh_line and not loaded.loads:
        return LoadComparison(LoadVerdict.FROM_START, f"it began at the start: {loaded.fresh_line!r}; {expectation}")
    folder = str(checkpoint.path.parent)
    loads_named = [load for load in loaded.loads if checkpoint.path.name in PurePosixPath(load.path).parts]
    homes = (folder, str(folder_of(checkpoint.path)))
    near = [load for load in loaded.loads if any(load.path.startswith(f"{home}/") or load.path == home for home in homes)]
    with_step = [load for load in (near or loaded.loads) if load.step is not None]
    loads_elsewhere = [load for load in with_step if load.step != checkpoint.step]
    if (
        loads_elsewhere
        and (not loads_named or loads_elsewhere[-1].number > loads_named[-1].number)
        and not any(load.step == checkpoint.step for load in with_step)
    ):
        last = loads_elsewhere[-1]
        return LoadComparison(LoadVerdict.OTHER, f"it loaded step {last.step}: {last.text!r}; {expectation}")
    if loads_named or any(load.step == checkpoint.step for load in with_step):
        line = (loads_named or [load for load in with_step if load.step == checkpoint.step])[-1]
        return LoadComparison(LoadVerdict.CHOSEN, f"it loaded {checkpoint.path.name}, as chosen: {line.text!r}")
    return None


def _by_first_step(checkpoint: Checkpoint, loaded: LoadedCheckpoint) -> LoadComparison:
    """Return what the first step says; steps may count from 0, and not every step is logged."""
    first, expectation = loaded.first_step, f"chosen was {checkpoint.path.name} (step {checkpoint.step})"
    if first is None:
        return LoadComparison(LoadVerdict.UNKNOWN, "the log does not tell yet which checkpoint was loaded")
    if not counts_steps(checkpoint.format, checkpoint.path.name) and checkpoint.step < first:
        return LoadComparison(LoadVerdict.UNKNOWN, f"its first logged step is {first}; {checkpoint.path.name} counts no steps")
    begins = f"its first logged step is {first}"
    slack = 0 if loaded.exact else SLACK_STEPS
    if first < checkpoint.step - slack:
        at_start = first <= max(1, loaded.interval or 1)
        return LoadComparison(LoadVerdict.FROM_START if at_start else LoadVerdict.OTHER, f"{begins}; {expectation}")
    if loaded.interval is None:
        unknown = LoadComparison(LoadVerdict.UNKNOWN, f"{begins}: how often it logs is not known yet; {expectation}")
        return (
            LoadComparison(LoadVerdict.CHOSEN, f"{begins}, right behind step {checkpoint.step}")
            if first <= checkpoint.step + 1
            else unknown
        )
    if first > checkpoint.step + loaded.interval + 1 + slack:
        return LoadComparison(
            LoadVerdict.OTHER, f"{begins}, {loaded.interval} steps apart: it went on from a later one; {expectation}"
        )
    return LoadComparison(LoadVerdict.CHOSEN, f"{begins}, right behind step {checkpoint.step}")
