"""Read step, loss and gradient norm off the lines of all common training frameworks.

Megatron-LM, Megatron-DeepSpeed, GPT-NeoX, DeepSpeed, InternEvo, Hugging Face Trainer, NeMo and Lightning, torchtitan, torchtune,
fairseq and metaseq, litgpt, nanoGPT, mmengine, FunASR, Composer, OLMo, TensorFlow, plain `step 12 loss 2.3`, and JSON lines.
What no format covers is read by its names and numbers, or under the header of a table (`pairs`).
Pure: text in, numbers out; NaN and inf are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.logs.lines import Line
from assistant.logs.named_numbers import NumberPattern, data_name, number_after
from assistant.logs.plain_metrics import DONE_WORDS, GATES, LineCount, PairsReading, TableReader, counted_reading, pairs_reading
from assistant.logs.prefix import DEFAULT_YEAR, PrefixMarks, marks_of
from assistant.logs.step_places import KnownShapes, places_of
from assistant.records import MetricPoint


class _Format(NamedTuple):
    """How one family of programs prints a step on one line."""

    gate: str
    """Text that every such line holds; looked for first, because that is cheap."""
    step: re.Pattern[str]
    loss: NumberPattern
    grad_norm: NumberPattern | None = None
    seconds: NumberPattern | None = None
    unit_s: float = 1.0
    """Seconds of one unit of `seconds`."""


LARGEST_STEP = 10**15
"""Steps beyond it are no steps: they would not fit where they are counted and kept."""
_MEGATRON_STEP = re.compile(r"\biteration\s+(\d{1,15})/")
_MEGATRON = (_MEGATRON_STEP, number_after(r"\blm[ _]loss(?: value)?:", "loss"), number_after(r"\bgrad norm:", "norm"))
_FORMATS = (
    _Format("per iteration (ms)", *_MEGATRON, number_after(r"elapsed time per iteration \(ms\):", "elapsed"), 0.001),
    _Format("per iteration (s)", *_MEGATRON, number_after(r"elapsed time per iteration \(s\):", "elapsed")),
    _Format(
        "tgs (tokens",
        re.compile(r"\bstep=(\d{1,15})"),
        number_after(r"\bloss=", "loss="),
        number_after(r"grad_norm=(?:\{[^}:]{0,100}:)?", "grad_norm="),
        number_after(r"fwd_bwd_time=", "fwd_bwd_time="),
    ),
    _Format(
        "Iter(train)",
        re.compile(r"\[\s*(\d{1,15})/"),
        number_after(r"\bloss:", "loss:"),
        number_after(r"\bgrad_norm:", "grad_norm:"),
        number_after(r"(?<!_)\btime:", "time:"),
    ),
    _Format(
        "loss train:",
        re.compile(r"\bstep (\d{1,15})"),
        number_after(r"\bloss train:", "loss train:"),
        None,
        NumberPattern(re.compile(r"iter time: ([\d.]+) ms"), ("iter time: ",)),
        0.001,
    ),
    _Format(
        "step_in_slice:",
        re.compile(r"step_in_slice: (\d{1,15})/"),
        number_after(r"loss_avg_rank:", "loss_avg_rank:"),
        None,
        number_after(r"'total_time': '", "total_time"),
    ),
    _Format("|Loss:", re.compile(r"\|(\d{1,15})\|Loss:"), number_after(r"\|Loss:", "|Loss:")),
    _Format("train loss ", re.compile(r"\bstep (\d{1,15}): train loss "), number_after(r"train loss", "train loss")),
    _Format(
        "lobal_step",
        re.compile(r"\bglobal_step[=:]\s*(\d{1,15})"),
        number_after(r"\b(?:reduced_)?(?:train_)?loss[=:]", "loss"),
        number_after(r"\bgrad_norm[=:]", "grad_norm"),
    ),
    _Format(
        "num_updates=",
        re.compile(r"\bnum_updates=(\d{1,15})"),
        number_after(r"\bloss=", "loss="),
        number_after(r"\bgnorm=", "gnorm="),
    ),
    _Format(
        "oss",
        re.compile(
            rf"\b(?i:(?:(?:{DONE_WORDS})_)?(?:steps?|iter|iteration)|it|batch|global step|update)(?:[:=\[ ]|\(train\))+(\d{{1,15}})"
            r"(?!\w)(?![\d.]*[:\d]\d|[\d.]*\s?%)",
            re.ASCII,
        ),
        number_after(r"\b(?:(?:lm|train|training|total|avg|mean)[_ /-])?[lL]oss(?: is)?\s{0,16}+[:=]?", "oss"),
        number_after(r"\b(?:(?:global |total )?grad(?:ient)?[_ ]?norm|gnorm)\s{0,16}+[:=]?", "norm"),
        number_after(r"\b(?:step_time|time/step|iter_time|sec/step)\s{0,16}+[:=]", "time", "sec/step"),
    ),
)
_STEP_KEYS = ("step", "global_step", "num_updates", "iteration", "iter", "current_steps", "trainer/global_step", "_step", "steps")
_LOSS_KEYS = (
    *("loss", "train_loss", "lm loss", "lm_loss", "lm-loss", "train/loss", "loss/train", "train/lm_loss", "loss/train/total"),
    *("reduced_train_loss", "total_loss", "train_inner/loss", "training_loss", "lm loss value"),
)
_NORM_KEYS = (
    "grad_norm",
    "gnorm",
    "grad norm",
    "grad-norm",
    "train/grad_norm",
    "gradient_norm",
    "global_grad_norm",
    "l2_norm/grad/global",
)
_PAIR = re.compile(r"""['"]([\w ./-]+)['"]:\s*['"]?([-+]?[\w.+-]+)""")
_BAR = re.compile(
    r"(?:^|[\]\s:])((?:Epoch (?P<epoch>\d{1,9})|[Tt]rain\w*|[Ss]teps?)?[^|%]{0,60}?)\s{0,8}"
    r"\b\d{1,3}%\|[^|]{0,400}\|\s{0,8}(?P<at>\d{1,15})/(?P<of>\d{1,15}) \["
)
_NAMED_EPOCH = re.compile(r"\b[Ee]poch[ =:]{0,2}\[?(\d{1,9})(?:\s?/\s?(\d{1,9}))?\]?")
_BAR_LOSS = number_after(r"[ ,\[](?:train[_/]|step_|reduced_train_)?[lL]oss(?:_step|/train)?=", "oss")
_BAR_END = re.compile(r"[^][]{0,400}\]")
"""What a bar says of itself; behind it stands what somebody else has written into the same line."""
_OTHER_LOOP = re.compile(r"alid|[Ee]val|[Tt]est|[Pp]redict|[Ii]nfer")
_DRAWN_BACK = 2
"""A bar that stands at less than one part in so many of where it stood has begun again: an evaluation's, an epoch's."""
_BLOCK_STEP = re.compile(r"\[(?:batch|step)=(\d{1,15})/")
_BLOCK_LOSS = number_after(
    r"(?:Train (?:metrics/)?loss/train/total:|train/CrossEntropyLoss=|train/CE loss=|Train LossBreakdown/total:)", "oss"
)
_BLOCK_NORM = number_after(r"(?:l2_norm/grad/global:|optim/total[_ ]grad[_ ]norm=)", "norm")
_EPOCH_BATCH = re.compile(
    r"\bEpoch(?P<of_one>\(train\))?:?\s{0,8}\[\s{0,8}(\d{1,9})\]\s{0,8}\[\s{0,12}(\d{1,12})/(\d{1,12})\]"
    r"|(?:^|[\s\])|])Train: (\d{1,9}) \[\s{0,12}(\d{1,12})/(\d{1,12})\s{1,8}\(\s{0,4}\d{1,3}%\)\]"
)
"""Source: pytorch/examples, imagenet/main.py; torchvision, references (MetricLogger); mmengine, whose epochs begin at 1; timm,
train.py: epochs and updates from 0."""
_LINE_LOSS = number_after(r"\b[lL]oss(?: is)?\s{0,16}+[:=]?", "oss")
_LINE_NORM = number_after(r"\bgrad_norm:", "grad_norm:")
_DEEPSPEED = re.compile(r"\bstep=(\d{1,15}), skipped=\d+, lr=")
_BATCH = re.compile(r"\bglobal[ _]batch[ _]size: *(\d{1,15})")
_OWN_RANK = re.compile(r"\[?(?:RANK|Rank|rank)[ :=]*(\d{1,9})\]?")
_KNOWN_SHAPES = KnownShapes()
"""Of the lines that `_FORMATS` read, of all logs: there is no more to a line of such a shape."""
_OTHER_LINES = ("%|", "[batch=", "[step=", "{", *GATES)
"""What stands in lines that say something of other lines as well, or may be read in another way."""


def metric_points(lines: Iterable[Line]) -> list[MetricPoint]:
    """Return the training metrics in the order of the lines.

    A line counts that names a loss together with a step; DeepSpeed's `step=, skipped=` counts without a loss. A Hugging Face
    `{'loss': …}` takes its step from the progress bar before it, or is counted on: by the steps that lie between two of them where
    the lines prove how many, else by one, and it is marked as `counted`. Where several ranks print the same step, the first one
    stays. Losses of an evaluation do not count. A step that is lower than the one before it is kept: the job went back.
    """
    reader = MetricReader()
    for line in lines:
        reader.take(line)
    reader.settle()
    return reader.points


class BarEpoch(NamedTuple):
    """What a progress bar says of its epoch."""

    number: int
    of: int | None
    """How many there are; None where it does not say. Bars that do (`Epoch 1/10`) count from 1 where none of epoch 0 was drawn,
    those that do not (Lightning's `Epoch 1:`) from 0."""


def bar_epoch(text: str) -> BarEpoch | None:
    """Return the epoch that stands in front of a progress bar, the last one of a line that was drawn again; else None."""
    matches = list(_NAMED_EPOCH.finditer(text))
    return BarEpoch(int(matches[-1][1]), int(matches[-1][2]) if matches[-1][2] else None) if matches else None


def counts_epochs(epoch: BarEpoch, at: int) -> bool:
    """Tell whether a bar that names an epoch stands where that epoch is, so that it may be the epochs that it counts."""
    return abs(at - epoch.number) <= 1


class _Bars:
    """The bars without a name that a log shows, by how much each has before it: which of them is the training loop's?

    Ranks, an evaluation and other programs draw into one log in any order. The training loop's goes on from one loss to the next
    and never begins again; where several do, none is believed.
    """

    def __init__(self) -> None:
        self._at: dict[int, int] = {}
        self._read_at: dict[int, int] = {}
        self._began_again: set[int] = set()
        self._believed = 0

    def draw(self, at: int, of: int) -> None:
        """Note where a bar stands; ranks that draw the same one may be a little behind."""
        before = self._at.get(of, 0)
        if at * _DRAWN_BACK < before:
            self._began_again.add(of)
        self._at[of] = at if at * _DRAWN_BACK < before else max(at, before)

    @property
    def drawn(self) -> bool:
        """Whether any was drawn."""
        return bool(self._at)

    def leads(self, of: int) -> bool:
        """Tell whether a bar is the training loop's as far as is known: the one that losses went by, or the only one so far."""
        return of == self._believed if self._believed else {*self._at} - self._began_again == {of}

    def step(self) -> int | None:
        """Return where the training loop's bar stands at a loss; None where none has moved since the last one, or several have."""
        moved = {of: at for of, at in self._at.items() if at > self._read_at.get(of, -1)}
        self._read_at = dict(self._at)
        candidates = {
            of: at for of, at in moved.items() if of not in self._began_again and (at < of or of == self._believed)
        } or moved
        if len(candidates) > 1:
            return None
        self._believed = next(iter(candidates), self._believed)
        return candidates.get(self._believed)


class MetricReader:
    """Reads on as a log grows: what must be remembered from line to line is remembered from look to look."""

    def __init__(self) -> None:
        """Begin with a log of which nothing has been read."""
        self.points: list[MetricPoint] = []
        """All points since the beginning, or since the last call of `news`, with the last one before it."""
        self._bars = _Bars()
        self._block: int | None = None
        self._leader: int | None = None
        self._table = TableReader()
        self.anchored = 0
        """Lines without a step of their own that took it from a bar which had moved on since the line before."""
        self.counted_on = 0
        """Those that were counted on behind a bar instead: many where the output was buffered, and bars and losses came apart."""
        self._from_zero = False  # whether a bar of epoch 0 was drawn
        self._of_one_epoch = False  # whether a bar stood elsewhere than its epoch: it counts steps, not the epochs themselves
        self._counted = 0  # points whose step was counted because no bar had been seen yet
        self._led = 0  # points before the first bar that were numbered by it
        self._run, self._run_begin = LineCount(), 0  # of the run that the log is in, and its first point
        self._setting: tuple[Line, PairsReading] | None = None  # what may be a setting, until the next line shows that it counts
        self._doubted = False  # whether the first point rests on names alone, without a loss, and may be a setting

    def news(self, lines: Iterable[Line]) -> list[MetricPoint]:
        """Return the points of lines that were appended, and forget those before."""
        known_count = len(self.points)
        for line in lines:
            self.take(line)
        new_points = self.points[known_count:]
        if new_points:
            self.points, self._counted = self.points[-1:], -1  # what was handed out keeps its number
            self._run_begin, self._led, self._doubted = -1, 0, False
        return new_points

    def settle(self) -> bool:
        """Give lines whose step was counted the steps that they stand for; False where what was read does not prove those."""
        begin, lines = self._run_begin, len(self._run.epochs)
        run = self.points[begin:] if begin >= 0 else []
        # more than one that goes by a bar: bar and lines stand in one log, and the bar is right
        if len(run) != lines or sum(not point.counted for point in run) > 1 or (steps := self._run.steps()) is None:
            return False
        self.points[begin:] = [replace(point, step=step, counted=False) for point, step in zip(run, steps, strict=True)]
        return True

    def take(self, line: Line) -> None:
        """Read one line; what it says is added to `points`."""
        text = line.text
        if self._block is None and (reading := _KNOWN_SHAPES.read(line)) is not None:
            point, rank = reading
            self._setting = None
            if self._goes_on(point.step, rank, has_loss=True):
                self.points.append(point)
            return
        if "%|" in text:
            if self._take_bar(line):
                return
            text = _beside_bars(text)
            line = Line(line.number, text)
        if self._run.take(text):
            self.settle()
            self._run, self._run_begin = self._run.next_run(), len(self.points) if self._run_begin >= 0 else -1
        if "[batch=" in text or "[step=" in text:
            match = _BLOCK_STEP.search(text)
            self._block = int(match[1]) if match else self._block
        if "oss" in text and self._take_loss(line):
            self._setting = None
            return
        if self._block is not None and self.points and (norm := _BLOCK_NORM.search(text)):
            self.points[-1] = replace(self.points[-1], grad_norm=float(norm[1]))
        elif "skipped=" in text and (match := _DEEPSPEED.search(text)):
            self._add(line, int(match[1]), None)
        else:
            self._take_unknown(line)

    def _take_unknown(self, line: Line) -> None:
        """Read a line of no known format by its names and numbers, or as a row of a table."""
        text = line.text
        names_a_step = any(word in text for word in ("tep", "ter", "pdate", "TEP", "TER"))
        reading = self._table.take(text) if names_a_step or self._table.columns else None
        if reading is None and (names_a_step or "] [" in text) and (":" in text or "=" in text):
            reading = pairs_reading(text)
        reading = counted_reading(text) if reading is None and names_a_step and "/" in text else reading
        if reading is None or reading.step > LARGEST_STEP:
            return
        before, self._setting = self._setting, (line, reading) if reading.setting else None
        if reading.setting and (before is None or before[1].setting != reading.setting or before[1].step >= reading.step):
            return
        if reading.setting and before is not None:
            self._add(before[0], before[1].step, None)
        alone = not self.points
        self._add(line, reading.step, reading.loss, reading.norm)
        self._doubted |= alone and reading.loss is None and reading.norm is None

    def _take_loss(self, line: Line) -> bool:
        """Read a line that names a loss; False where it is of no known format."""
        text = line.text
        if "{" in text and self._take_object(line):
            return True
        if self._block is not None and (match := _BLOCK_LOSS.search(text)):
            self._add(line, self._block, match[1])
            return True
        if "eval" in text or "valid" in text.lower():
            return True
        if ("Epoch" in text or "Train: " in text) and (place := _EPOCH_BATCH.search(text)) and (loss := _LINE_LOSS.search(text)):
            epoch, batch, batches = (int(number) for number in place.groups()[1:] if number is not None)
            norm = _LINE_NORM.search(text)
            self._add(line, (epoch - bool(place["of_one"])) * batches + batch, loss[1], norm[1] if norm else None, epoch=epoch)
            return True
        for shape in _FORMATS:
            if shape.gate in text and (step := shape.step.search(text)) and (loss := shape.loss.search(text)):
                norm = shape.grad_norm.search(text) if shape.grad_norm else None
                spent = shape.seconds.search(text) if shape.seconds else None
                seconds = float(spent[1]) * shape.unit_s if spent else None
                marks = marks_of(text)
                self._add(line, int(step[1]), loss[1], norm[1] if norm else None, seconds, marks=marks)
                if self._block is None and not any(word in text for word in _OTHER_LINES):
                    own, size = _own_rank(text), _batch(text)
                    _KNOWN_SHAPES.keep(
                        text,
                        places_of(step, loss, norm, spent, shape.unit_s, rank=own, batch=size, data=data_name(text), marks=marks),
                    )
                return True
        return False

    def _take_bar(self, line: Line) -> bool:
        """Remember where the bar of the training loop stands; True when the line is a bar that carries the loss itself."""
        bars = list(_BAR.finditer(line.text))
        if not bars:
            return False
        for bar in bars:
            at, of = int(bar["at"]), int(bar["of"])
            has_name = bool(bar[1].rpartition("]")[2].strip(" :"))  # behind "]" where an earlier state of it stands before
            if has_name:
                continue
            self._bars.draw(at, of)
            if self._bars.leads(of):
                self._run.bar = (len(self._run.epochs), at)
                self._number_again(at)
        bar = bars[-1]
        at, of = int(bar["at"]), int(bar["of"])
        own = _BAR_END.match(line.text, bar.end())
        loss = _BAR_LOSS.search(line.text[: own.end()], bar.end()) if own is not None and "{'" not in line.text else None
        if loss is None or _OTHER_LOOP.search(bar[1]):
            return False
        step = re.search(r"global_step=(\d{1,15})", line.text)
        epoch = bar_epoch(bar[1])
        self._from_zero |= epoch is not None and not epoch.number
        self._of_one_epoch |= epoch is not None and not counts_epochs(epoch, at)
        epochs_before = 0 if epoch is None else epoch.number - (epoch.of is not None and not self._from_zero)
        epochs_before *= self._of_one_epoch
        self._add(
            line,
            int(step[1]) if step else at + of * max(epochs_before, 0),
            loss[1],
            epoch=epoch.number if epoch is not None else None,
        )
        return True

    def _number_again(self, at: int) -> None:
        """Give the points before the first bar the steps that lead up to it."""
        if self._counted == len(self.points) and at > self._counted:
            self.points = [replace(point, step=point.step + at - self._counted) for point in self.points]
            self._led = len(self.points)
        self._counted = -1

    def _take_object(self, line: Line) -> bool:
        values = dict(_PAIR.findall(line.text))
        loss = _number(values, _LOSS_KEYS)
        if loss is None:
            return any(key.startswith("eval") for key in values)
        step = _number(values, _STEP_KEYS)
        if step is not None and not abs(step) <= LARGEST_STEP:
            return True  # 1e400, NaN: a step of no training, which no count of ours could take
        if step is None and "train_runtime" in values:
            return True  # the average over a training that is over
        if step is None:
            last = self.points[-1].step if self.points else 0
            at = self._bars.step()
            moved = at is not None and at > last
            step = at if at is not None and moved else last + 1
            self.anchored += moved
            self.counted_on += not moved and self._bars.drawn
            self._counted += not self._bars.drawn
            self._run.epochs.append(_number(values, ("epoch",)))
            if at is not None and at >= last:  # bar and lines stand in one log, and the count before the bar may rest on it
                self.points[: self._led] = [replace(point, counted=False) for point in self.points[: self._led]]
                self._led = 0
            self._add(line, int(step), loss, _number(values, _NORM_KEYS), counted=not moved)
            return True
        self._add(line, int(step), loss, _number(values, _NORM_KEYS))
        return True

    def _add(
        self,
        line: Line,
        step: int,
        loss: str | float | None,
        norm: str | float | None = None,
        seconds: float | None = None,
        *,
        counted: bool = False,
        epoch: int | None = None,
        marks: PrefixMarks | None = None,
    ) -> None:
        marks = marks or marks_of(line.text)
        own = _own_rank(line.text)
        rank = int(own[1]) if own else int(line.text[slice(*marks.rank)]) if marks.rank is not None else None
        if not self._goes_on(step, rank, has_loss=loss is not None):
            return
        at = marks.at if marks.at is not None and marks.at.year != DEFAULT_YEAR else None
        batch = _batch(line.text)
        self.points.append(
            MetricPoint(
                step,
                None if loss is None else float(loss),
                None if norm is None else float(norm),
                line.number,
                at,
                seconds,
                int(batch[1]) if batch else None,
                counted,
                epoch,
                data[1] if (data := data_name(line.text)) else "",
            )
        )

    def _goes_on(self, step: int, rank: int | None, *, has_loss: bool) -> bool:
        """Make room for a point; False where another line has said it, or another rank is behind."""
        if not self.points:
            self._leader = rank
            return True
        last = self.points[-1].step
        if self._doubted and len(self.points) == 1 and has_loss and step < last:
            self.points.pop()  # the training begins below it: what was taken for a step is a setting
            self._leader = rank
        elif step == last and self.points[-1].loss is None and has_loss:
            self.points.pop()  # DeepSpeed says the step on one line and its loss on the next
        elif step == last or (rank != self._leader and step < last):
            return False
        return True


def _own_rank(text: str) -> re.Match[str] | None:
    """Return the rank that a line names itself."""
    return _OWN_RANK.search(text) if "ank" in text or "RANK" in text else None


def _batch(text: str) -> re.Match[str] | None:
    return _BATCH.search(text) if "batch" in text else None


def _beside_bars(text: str) -> str:
    """Return a line without the bars in it: what others have written before or behind them."""
    chunks, end = [], 0
    for bar in _BAR.finditer(text):
        own = _BAR_END.match(text, bar.end())
        percent = text.rfind("%|", 0, bar.end())
        start = len(text[:percent].rstrip("0123456789")) if percent >= end else bar.start()
        chunks.append(text[end:start])
        end = own.end() if own is not None else bar.end()
    return " ".join([*chunks, text[end:]]) if end else text


def _number(values: Mapping[str, str], keys: Sequence[str]) -> float | None:
    for key in keys:
        if key in values:
            try:
                return float(values[key])
            except ValueError:
                continue
    return None
