"""Tell what kind of program a log is of, so that advice names only what such a program has.

Decided once a case: a server has no checkpoint, a preprocessing step no micro batch, a model of images no sequence. The name of the
program that failed says most, then its functions, then what it prints; where nothing tells, the kind is unknown and nothing that
belongs to one kind is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.raising import LIBRARY, raised_at
from assistant.diagnose.readers.tracebacks import Frame
from assistant.logs.lines import Line
from assistant.records import Diagnosis

HEAD, TAIL, MOST_OF_LINE = 300, 60, 600


class ProgramKind(StrEnum):
    """What a program does."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    SERVING = "serving"
    PREPROCESSING = "preprocessing"
    BUILD = "build"
    UNKNOWN = "unknown"


_NAMED = (
    (
        ProgramKind.PREPROCESSING,
        re.compile(r"pre_?process|prepare|convert|tokeni[sz]e(?!r)|download|extract|dedup|(?:^|_)merge", re.IGNORECASE),
    ),
    (ProgramKind.TRAINING, re.compile(r"train|fine_?tun|(?:^|_)(?:fit|sft|dpo|grpo|ppo|rlhf)(?:_|$)", re.IGNORECASE)),
    (ProgramKind.SERVING, re.compile(r"serve|(?:^|_)(?:api|app|webui|gradio)(?:_|$)|fastapi|launch_server", re.IGNORECASE)),
    (
        ProgramKind.EVALUATION,
        re.compile(r"eval|(?:^|_)test|infer|predict|bench|generat|sampl|demo|visuali[sz]|compare|probe", re.IGNORECASE),
    ),
)
"""By the name of a file or function, in the order in which they are asked: `preprocess_train` prepares, `train_test` trains."""
_STARTED = re.compile(
    r"(?:python[\d.]*|torchrun|accelerate launch|deepspeed|srun|bash)\s"
    r"(?:.{0,300}?[\s/])?([A-Za-z_]\w{0,80})\.(?:py|sh)\b|-m ([\w.]{1,120})"
)
_TRAINS = frozenset(
    {"training_step", "_inner_training_loop", "train", "fit", "_fit_impl", "backward", "train_batch", "optimizer_step"}
)
_SERVES = re.compile(
    r"Uvicorn running|Application startup complete|\(APIServer|\(EngineCore|\bvllm serve\b"
    r"|Starting vLLM (?:API )?server|launch_server"
    r"|Running on (?:local URL|http)|FastAPI|Started server process|tritonserver|api_server"
)
_BUILDS = re.compile(r"CMake Error|CMakeLists|Building wheel|setup\.py|build_ext|\bninja\b|\bnvcc\b|subprocess-exited-with-error")
_TEXT = re.compile(
    r"token(?:s|iz|_)|seq(?:uence)?[-_ ]?len|max[-_](?:model|prompt|completion|new|context)[-_]"
    r"|vocab|\bprompts?\b|Llama|llama|GPT|gpt|[Bb]ert\b|BERT"
    r"|[Qq]wen|CausalLM|block_size|cutoff_len"
)


class Program(NamedTuple):
    """What is known of the program of a case."""

    kind: ProgramKind
    text: bool
    """Whether it works on sequences of tokens."""
    steps: int
    """Steps that the last attempt is proven to have made."""

    @property
    def trains(self) -> bool:
        """Whether it may have checkpoints: a training, or nothing says otherwise and it made steps."""
        return self.kind is ProgramKind.TRAINING or (self.kind is ProgramKind.UNKNOWN and self.steps > 0)


def program_of(diagnosis: Diagnosis, facts: Facts) -> Program:
    """Return what kind of program a case is of."""
    frames = [frame for cited in diagnosis.root_cause[:2] if (known := raised_at(cited, facts)) for frame in known[1].frames]
    own = [frame for frame in frames if not LIBRARY.search(frame.file)]
    head = [line.text[:MOST_OF_LINE] for line in _shown(facts)]
    cited_text = [cited.text[:MOST_OF_LINE] for cited in diagnosis.root_cause[:3]]
    text = any(_TEXT.search(line) for line in (*head, *cited_text)) or any(_TEXT.search(frame.file) for frame in own)
    progress = facts.progress
    steps = int(max(progress.steps[progress.before(progress.leg - 1) :], default=0)) if not progress.learnt else len(progress.steps)
    functions = {frame.function for frame in frames}
    return Program(_kind(own, functions, [*head, *cited_text], facts), text, steps)


def _kind(own: list[Frame], functions: set[str], lines: list[str], facts: Facts) -> ProgramKind:
    if any(_BUILDS.search(line) for line in lines[-TAIL:]) and not facts.points:
        return ProgramKind.BUILD
    named = next((kind for name in _names(own) if (kind := _kind_named(name))), None)
    if named is not None:
        return named
    if functions & _TRAINS or any(point.loss is not None for point in facts.points):
        return ProgramKind.TRAINING
    if any(_SERVES.search(line) for line in lines):
        return ProgramKind.SERVING
    started = (match[1] or match[2] for line in lines for match in _STARTED.finditer(line))
    return next((kind for name in started if (kind := _kind_named(name))), ProgramKind.UNKNOWN)


def _names(own: list[Frame]) -> Iterator[str]:
    """Yield the names of the job's own files, the outermost first, then of its functions."""
    for frame in own:
        yield re.split(r"[/\\]", frame.file)[-1].rpartition(".")[0]
    for frame in own:
        yield frame.function


def _kind_named(name: str) -> ProgramKind | None:
    return next((kind for kind, pattern in _NAMED if pattern.search(name)), None)


def _shown(facts: Facts) -> list[Line]:
    first = facts.progress.leg
    start = next((place for place, line in enumerate(facts.lines) if line.number >= first), 0)
    head = list(facts.lines[start : start + HEAD])
    return head + [line for line in facts.lines[-TAIL:] if not head or line.number > head[-1].number]
