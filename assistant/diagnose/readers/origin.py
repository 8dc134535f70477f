"""Where in the code a cited exception came from: the frame of the job's own code, the library, and the kind of program.

Tracebacks are read by `tracebacks`; those that a logger printed line by line, each behind the same prefix, are read here.

The kind of program is decided once a case, so that advice names only what such a program has: a server has no checkpoint, a
preprocessing step no micro batch, a model of images no sequence. The name of the program that failed says most, then its
functions, then what it prints; where nothing tells, the kind is unknown and nothing that belongs to one kind is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.expressions import is_source, marked
from assistant.diagnose.readers.tracebacks import Episode, Raised, SourceFrame
from assistant.logs.lines import Line
from assistant.records import Citation, Diagnosis

MOST_OF_SOURCE = 160
LOGGED_BEFORE = 160
"""Lines before a cited one among which a logged traceback is looked for."""
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\]([A-Za-z_]\w*)|[/\\]\.julia[/\\](?:packages|dev)[/\\]([A-Za-z_]\w*)")
LIBRARY = re.compile(
    r"(?:^|[/\\])(?:site|dist)-packages[/\\]|[/\\]lib(?:32|64)?[/\\]python\d|[/\\]Lib[/\\]|\\lib\\|^/usr/(?:local/)?lib(?:64)?/|^<|\.p(?:yx|xi|xd)$|importlib|(?:^|/)(?:uvloop|asyncio|zmq)/"
    r"|/(?:torch|transformers|accelerate|deepspeed|vllm|sglang|megatron|pytorch_lightning)/\w[\w/]*\.py$"
    r"|/ray/(?:_private|train|tune|actor|rllib|data|util)\b|^/(?:opt/[\w.-]+|usr)/bin/"
    r"|/(?:envs?|\.?venvs?)/(?:[\w.-]+/)?bin/[\w.-]+$|[/\\]\.julia[/\\]packages[/\\]"
)
_WORKPLACE = re.compile(r"()/(torch|transformers|accelerate|deepspeed|vllm|sglang|megatron|ray)/\w[\w/]*\.py$")
_STANDARD = re.compile(r"[/\\][Ll]ib(?:64)?[/\\](?:python3?[\d.]*[/\\])?([a-z_]\w*)")
_HANDLERS = re.compile(
    r"(?:site|dist)-packages/(?P<server>gradio)/(?:queueing|routes|route_utils)\.py$|(?:site|dist)-packages/(?P<app>starlette|fastapi|flask|"
    r"werkzeug|django/core/handlers|tornado/web|aiohttp/web_protocol|uvicorn/protocols|sanic|grpc/_server|streamlit/runtime|celery/app/trace)"
)
"""Files of servers that catch what a request or task raises, and go on."""
FORWARDS = frozenset(
    {"_call_impl", "_wrapped_call_impl", "__call__", "wrapper", "wrapped_func", "inner", "decorate_context", "_fn"}
)
"""Functions of libraries that hand a call on to the function that was meant."""
MESSAGE_LINES = 4
_HEAD_OF_MESSAGE = re.compile(r"-{2,3}> FOAM FATAL")
_END_OF_MESSAGE = re.compile(r"Stacktrace:$|Calls: |Execution halted|[%*#=-]{8,}\s*$|From (?:const )?\S{1,200}\(|Backtrace:$")
"""The head of a message that stands on the lines below, and what ends such a message."""
_GOES_ON = re.compile(r"(?:Original error|Caused by|Cause|Reason|Details?|Inner (?:error|exception)|Value error)\b", re.IGNORECASE)
"""How a second line begins that says what the first one only announces."""
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d{1,9})(?:, in (\S+))?')
_CELL_FRAME = re.compile(r"File (\S{1,300}?):(\d{1,9}), in ([\w.<>]{1,120})")
_ARROW = re.compile(r"-+> ?\d{1,9} (.*)")
_MAIN = re.compile(r"(?:return |raise |sys\.exit\(|exit\()?\w*main\w*\(|(?:fire\.)?Fire\(|app\.run\(|cli\(")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]{0,80}(?:Error|Exception): ")
_JULIA_CALL = re.compile(r"\s*\[\d{1,3}\] \(?(?:::)?([\w.!#]{1,80})")
_JULIA_PLACE = re.compile(r"\s+@ (?:[\w.]{1,80} )?((?:\.{0,2}|~|[A-Za-z]:)[/\\][^\s:]{1,300}):(\d{1,9})(?:\s|$)")
"""How IPython and Julia print frames."""
MOST_WRAPPED, WRAPPED_AROUND, WRAPPED_FULL = 60, 20, 3
"""Characters of the widest line of a wrapped log, lines around a message that are looked at, those at full width among them."""
_PAGE = re.compile(r"<!DOCTYPE html|<html[\s>]", re.IGNORECASE)
_HIDDEN = re.compile(r"<(?P<tag>style|script|title)\b.{0,4000}?</(?P=tag)>|<!--.{0,2000}?-->", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]{1,400}>")
MOST_OF_PAGE = 20_000
_LOGGED = re.compile(r"[EWIF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} +\d{1,20} [\w./-]{1,80}:\d{1,6}\] ?")
"""What absl and glog put before each line of a message."""
_RULE = re.compile(r"[-=_*]{5,80}$|[\w.]{1,60}(?:Error|Exception): |Traceback")
_MARKS = re.compile(r"\s{2,}[~^]{2,}\s*$")
_DIGITS = re.compile(r"\d")
_CLASS = re.compile(r"(?:[A-Za-z_]\w*\.){0,8}[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Failure)\b")


class Origin(NamedTuple):
    """Where an exception came from."""

    file: str
    line: int
    """1-based; 0 where the frame does not say it."""
    function: str
    code: str
    """The line of source, as far as the log shows it."""
    part: str
    """What marks below the line of source mark."""
    own: bool
    """Whether it is the job's own code."""
    deepest: str
    """The line of source of the frame that raised it."""
    deepest_file: str
    """File of the frame that raised it."""
    deepest_line: int
    """1-based; 0 where the frame does not say it."""
    library: str
    """Package whose frame raised it; empty where the job's own code did."""
    caller: str
    """Package that called that library; empty where the job's own code did."""

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


def origin_of(cited: Citation, facts: Facts) -> Origin | None:
    """Return where a cited line was raised; None where the log shows no frame."""
    frames = _called(frames_of(cited, facts))
    numbered = [frame for frame in frames if frame.line]
    if not numbered:
        return None
    own = _own(numbered) or _own(_chained_frames(cited, facts))
    frame = own or numbered[-1]
    code, (_, part) = code_of(frame, facts), _source(frame, facts)
    packages = [
        package_of(package_frame.file)
        for package_frame in frames
        if package_frame is frames[-1] or package_frame.function not in FORWARDS
    ]
    library = packages[-1] if frames[-1] is not own else ""
    caller = next((package for package in reversed(packages) if package != library), "") if library else ""
    deepest = code if frame is frames[-1] else code_of(frames[-1], facts)
    place, deepest_place = (frame.file, frame.line, frame.function), (frames[-1].file, frames[-1].line)
    return Origin(*place, code, part, own is not None, deepest, *deepest_place, library, caller)


def caller_of(cited: Citation, facts: Facts) -> tuple[str, str]:
    """Return where the job's own code called the function in which a line was raised, and that line; two empty texts without it.

    A function that another process ran is called where the outer traceback of the chain ends.
    """
    place = raised_at(cited, facts)
    chains = (
        [frames_of(cited, facts)] if place is None else [place[1].frames, *(raised.frames for raised in reversed(place[0].raised))]
    )
    own = [[frame for frame in frames if frame.line and not LIBRARY.search(frame.file)] for frames in chains]
    if not own[0] or own[0][-1].function == "<module>":
        return "", ""
    inner = own[0][-1]
    outer = own[0][-2] if len(own[0]) > 1 else next((frames[-1] for frames in own[1:] if frames and frames[-1] != inner), None)
    source = code_of(outer, facts) if outer is not None else ""
    name = "" if inner.function in (*FORWARDS, "forward", "__init__", "__getitem__") else re.escape(inner.function)
    handed = re.search(rf"\b{name}(?:\(\s*[^)\s]|\s*,)" if name else r"\(\s*[^)\s]", source)
    if (
        outer is None
        or handed is None
        or _MAIN.match(source)
        or "*args" in source
        or (outer.file, outer.line) == (inner.file, inner.line)
    ):
        return "", ""
    return f"{outer.file}:{outer.line}", source


def _called(frames: Sequence[SourceFrame]) -> Sequence[SourceFrame]:
    """Return the frames without those at the end that only forward a call, such as `__call__` of a module."""
    last = len(frames)
    while last > 1 and frames[last - 1].function in FORWARDS and package_of(frames[last - 1].file):
        last -= 1
    return frames[:last]


def _own(frames: Sequence[SourceFrame]) -> SourceFrame | None:
    return next((frame for frame in reversed(frames) if frame.line and not LIBRARY.search(frame.file)), None)


def _chained_frames(cited: Citation, facts: Facts) -> Sequence[SourceFrame]:
    """Return the frames of the exceptions that are chained to a cited one: an inner one may show those of a library only."""
    place = raised_at(cited, facts)
    return [frame for raised in place[0].raised for frame in raised.frames] if place is not None else ()


def package_of(file: str) -> str:
    """Return the package that a file of a library belongs to; empty for the job's own code."""
    if match := _PACKAGE.search(file) or _WORKPLACE.search(file):
        return match[1] or match[2]
    if not LIBRARY.search(file):
        return ""
    match = _STANDARD.search(file)
    return match[1] if match else ""


def raised_at(cited: Citation, facts: Facts) -> tuple[Episode, Raised] | None:
    """Return the exception whose line is cited, with its traceback."""
    if cited.file != "job.log":
        return None
    return next(((e, r) for e in facts.episodes for r in e.raised if r.line == cited.line), None)


def message_of(cited: Citation, facts: Facts) -> list[str]:
    """Return the lines of the message that begins on a cited line, the cited one first; of a page of HTML what it shows."""
    lines = _message_lines(cited, facts)
    if len(lines) > 1 and _LOGGED.match(lines[0]):
        lines = [lines[0], *(_LOGGED.sub("", text) for text in lines[1:])]
    page = next((place for place, text in enumerate(lines) if _PAGE.search(text)), -1)
    return lines if page < 0 else [*lines[:page], _page_text(" ".join(lines[page:]))]


def _page_text(page: str) -> str:
    """Return the text of a page of HTML as a browser shows it, behind what stands before it."""
    return " ".join(_TAG.sub(" ", _HIDDEN.sub(" ", page[:MOST_OF_PAGE])).split())


BARE_EXCEPTION = re.compile(r"[\w.]{0,120}(?:Error|Exception):")
"""The head of a message that begins on a later line."""


def _first_paragraph(lines: Sequence[str]) -> list[str]:
    """Return the first lines that stand together, without those behind the next empty one."""
    first = next((place for place, text in enumerate(lines) if text), len(lines))
    end = next((place for place in range(first, len(lines)) if not lines[place]), len(lines))
    return list(lines[first:end])


def _message_lines(cited: Citation, facts: Facts) -> list[str]:
    raised = raised_at(cited, facts)
    more = [text for _, text in raised[1].more] if raised is not None else []
    if (inner := _quoted_message(more)) is not None:
        return [facts.streams.body(text).text.strip() for text in inner]
    lines = [facts.streams.body(text).text.strip() for text in (cited.text, *more)]
    if BARE_EXCEPTION.fullmatch(lines[0]):
        lines = [lines[0], *_first_paragraph(lines[1:])]
    if cited.file == "job.log" and len(cited.text) <= MOST_WRAPPED and (wrapped := _wrapped(cited, facts)):
        return [wrapped]
    if len(lines) > 1 or cited.file != "job.log":
        return lines
    stream = facts.streams.body(cited.text).stream
    bodies = [facts.streams.body(line.text) for line in facts.between(cited.line + 1, cited.line + MESSAGE_LINES)]
    own = [body.text.strip() for body in bodies if body.stream == stream]
    if lines[0].endswith(":") or _HEAD_OF_MESSAGE.match(lines[0]) or (own and _GOES_ON.match(own[0])):
        end = next((place for place, text in enumerate(own) if not text or _END_OF_MESSAGE.match(text)), len(own))
        return [*lines, *own[:end]]
    return lines


def _wrapped(cited: Citation, facts: Facts) -> str:
    """Return a message that a narrow terminal wrapped, as one line; empty where the lines around are not all cut at one width."""
    around = facts.between(max(1, cited.line - WRAPPED_AROUND), cited.line)
    widths = sorted(len(line.text.rstrip()) for line in around)
    full = [width for width in widths if width >= widths[-1] - 1]
    if len(around) < WRAPPED_AROUND or widths[-1] > MOST_WRAPPED or len(full) < WRAPPED_FULL:
        return ""
    lines_after = facts.between(cited.line + 1, cited.line + WRAPPED_AROUND)
    end = next(
        (place for place, line in enumerate(lines_after) if not line.text.strip() or _RULE.match(line.text)), len(lines_after)
    )
    return " ".join([cited.text.strip(), *(line.text.strip() for line in lines_after[:end])]) if end else ""


def _quoted_message(lines: Sequence[str]) -> Sequence[str] | None:
    """Return the message of the exception that the lines of another one quote with its traceback; None where they quote none."""
    framed = next((place for place, text in enumerate(lines) if _FRAME.match(text) or _MARKS.match(text)), len(lines))
    start = next((place for place in range(framed, len(lines)) if _EXCEPTION.match(lines[place])), None)
    if start is None:
        return None
    end = next((place for place in range(start + 1, len(lines)) if not lines[place].strip(" -=")), len(lines))
    return lines[start:end]


def frames_of(cited: Citation, facts: Facts) -> Sequence[SourceFrame]:
    """Return the frames of a cited exception, the innermost last, with those of a traceback that its message quotes."""
    raised = raised_at(cited, facts)
    if raised is not None and raised[1].frames:
        return [*raised[1].frames, *_quoted_frames(raised[1], facts)]
    if cited.file != "job.log":
        return ()
    return _logged_frames(cited, facts) or _cell_frames(cited, facts) or _julia_frames(cited, facts)


def _quoted_frames(raised: Raised, facts: Facts) -> list[SourceFrame]:
    """Return the frames of another traceback that an exception carries in its message, as one of a worker process does."""
    begin, end = raised.frames[-1].at + 1, max([raised.line, *(number for number, _ in raised.more)])
    lines = facts.between(begin, end) if end - begin <= LOGGED_BEFORE else []
    start = next((line.number for line in lines if "Traceback (most recent" in line.text), 0)
    if not start and not any(_FRAME.match(f" {line.text}") for line in lines if line.number > raised.line):
        return []
    start = start or raised.line
    matches = ((line.number, _FRAME.match(f" {line.text}")) for line in lines if line.number > start)
    return [SourceFrame(match[1], match[3] or "", int(match[2]), number) for number, match in matches if match is not None]


def _cell_frames(cited: Citation, facts: Facts) -> list[SourceFrame]:
    """Return the frames of a cited exception as IPython prints them; where they are all a library's, of the one that it caused."""
    lines_before = facts.between(cited.line - LOGGED_BEFORE, cited.line - 1)
    start = next(
        (place for place in range(len(lines_before) - 1, -1, -1) if "Traceback (most recent" in lines_before[place].text), None
    )
    frames = _cells(lines_before[start:]) if start is not None else []
    if frames and _own(frames) is None:
        lines_after = facts.between(cited.line + 1, cited.line + LOGGED_BEFORE)
        end = next((place for place, line in enumerate(lines_after) if _EXCEPTION.match(line.text)), len(lines_after))
        return _cells(lines_after[:end]) or frames
    return frames


def _cells(lines: Sequence[Line]) -> list[SourceFrame]:
    frames: list[SourceFrame] = []
    header: re.Match[str] | None = None
    for line in lines:
        if match := _CELL_FRAME.match(line.text):
            header = match
        elif header is not None and _ARROW.match(line.text):
            frames.append(SourceFrame(header[1], header[3], int(header[2]), line.number - 1))
            header = None
    return frames


def _julia_frames(cited: Citation, facts: Facts) -> list[SourceFrame]:
    """Return the frames behind a cited line as Julia prints them, without those of its own base."""
    frames: list[SourceFrame] = []
    function = ""
    for line in facts.between(cited.line + 1, cited.line + LOGGED_BEFORE):
        if match := _JULIA_CALL.match(line.text):
            function = match[1]
        elif function and (match := _JULIA_PLACE.match(line.text)):
            if not match[1].startswith("./"):
                frames.append(SourceFrame(match[1], function, int(match[2]), 0))
            function = ""
        elif frames and not line.text[:1].isspace():
            break
    return frames[::-1]


def _logged_frames(cited: Citation, facts: Facts) -> list[SourceFrame]:
    """Return the frames that stand before a cited line behind the prefix that it has, too."""
    error = _CLASS.search(cited.text)
    if error is None:
        return []
    prefix = cited.text[: error.start()]
    if not prefix.strip():
        return _frames_above(cited, facts)
    frames: list[SourceFrame] = []
    form = _DIGITS.sub("0", prefix)
    for line in reversed(facts.between(cited.line - LOGGED_BEFORE, cited.line - 1)):
        if _DIGITS.sub("0", line.text[: len(prefix)]) != form:
            continue
        body = line.text[len(prefix) :]
        if body.startswith("Traceback") or _CLASS.match(body):
            break
        if match := _FRAME.match(f" {body}"):
            frames.append(SourceFrame(match[1], match[3] or "", int(match[2]), line.number))
    return frames[::-1]


def _frames_above(cited: Citation, facts: Facts) -> list[SourceFrame]:
    """Return the frames right above a cited line, whatever heading they have."""
    frames: list[SourceFrame] = []
    for line in reversed(facts.between(cited.line - LOGGED_BEFORE, cited.line - 1)):
        if not line.text[:1].isspace():
            break
        if match := _FRAME.match(line.text):
            frames.append(SourceFrame(match[1], match[3] or "", int(match[2]), line.number))
    return frames[::-1]


def request_handler(cited: Citation, facts: Facts) -> str:
    """Return the server that handled the request in which a line was raised, and goes on; empty where none did."""
    matches = (_HANDLERS.search(frame.file.replace("\\", "/")) for frame in frames_of(cited, facts))
    match = next((match for match in matches if match is not None), None)
    return (match["server"] or match["app"]).partition("/")[0] if match is not None else ""


def source_of(frame: SourceFrame, facts: Facts) -> str:
    """Return the line that a traceback shows behind a frame, whatever it is; empty where it shows none."""
    return _source(frame, facts)[0]


def code_of(frame: SourceFrame, facts: Facts) -> str:
    """Return the line of source that a traceback shows behind a frame; empty where it shows none that may be Python."""
    return text if is_source(text := source_of(frame, facts)) else ""


def _source(frame: SourceFrame, facts: Facts) -> tuple[str, str]:
    """Return the line of source that a traceback shows behind a frame, and what is marked of it; empty where it shows none."""
    line, code_line = facts.line(frame.at), facts.line(frame.at + 1)
    if line is None or code_line is None:
        return "", ""
    if arrow := _ARROW.match(code_line.text):
        return _shortened(arrow[1].strip()), ""
    prefix = line.text[: max(line.text.find('File "'), 0)].rstrip()
    text = code_line.text[len(prefix) :]
    alike = _DIGITS.sub("0", code_line.text[: len(prefix)]) == _DIGITS.sub("0", prefix)
    if not text[:1].isspace() or text.strip().startswith(("File ", "^", "~")) or not alike:
        return "", ""
    below = facts.line(frame.at + 2)
    part = marked(text, below.text[len(prefix) :]) if below is not None else ""
    return _shortened(text.strip()), part


def _shortened(source: str) -> str:
    return source if len(source) <= MOST_OF_SOURCE else f"{source[:MOST_OF_SOURCE]}…"


FIRST_LINES, LAST_LINES, MOST_OF_LINE = 300, 60, 600


class ProgramKind(StrEnum):
    """What a program does."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    SERVING = "serving"
    PREPROCESSING = "preprocessing"
    BUILD = "build"
    UNKNOWN = "unknown"


_PROGRAM_NAMES = (
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


class ProgramOfLog(NamedTuple):
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


def program_of(diagnosis: Diagnosis, facts: Facts) -> ProgramOfLog:
    """Return what kind of program a case is of."""
    frames = [frame for cited in diagnosis.root_cause[:2] if (raised := raised_at(cited, facts)) for frame in raised[1].frames]
    own = [frame for frame in frames if not LIBRARY.search(frame.file)]
    head = [line.text[:MOST_OF_LINE] for line in _first_and_last(facts)]
    cited_text = [cited.text[:MOST_OF_LINE] for cited in diagnosis.root_cause[:3]]
    text = any(_TEXT.search(line) for line in (*head, *cited_text)) or any(_TEXT.search(frame.file) for frame in own)
    progress = facts.progress
    steps = int(max(progress.steps[progress.before(progress.leg - 1) :], default=0)) if not progress.learnt else len(progress.steps)
    functions = {frame.function for frame in frames}
    return ProgramOfLog(_kind(own, functions, [*head, *cited_text], facts), text, steps)


def _kind(own: list[SourceFrame], functions: set[str], lines: list[str], facts: Facts) -> ProgramKind:
    if any(_BUILDS.search(line) for line in lines[-LAST_LINES:]) and not facts.points:
        return ProgramKind.BUILD
    by_name = next((kind for name in _names(own) if (kind := _kind_named(name))), None)
    if by_name is not None:
        return by_name
    if functions & _TRAINS or any(point.loss is not None for point in facts.points):
        return ProgramKind.TRAINING
    if any(_SERVES.search(line) for line in lines):
        return ProgramKind.SERVING
    started = (match[1] or match[2] for line in lines for match in _STARTED.finditer(line))
    return next((kind for name in started if (kind := _kind_named(name))), ProgramKind.UNKNOWN)


def _names(own: list[SourceFrame]) -> Iterator[str]:
    """Yield the names of the job's own files, the outermost first, then of its functions."""
    for frame in own:
        yield re.split(r"[/\\]", frame.file)[-1].rpartition(".")[0]
    for frame in own:
        yield frame.function


def _kind_named(name: str) -> ProgramKind | None:
    return next((kind for kind, pattern in _PROGRAM_NAMES if pattern.search(name)), None)


def _first_and_last(facts: Facts) -> list[Line]:
    first = facts.progress.leg
    start = next((place for place, line in enumerate(facts.lines) if line.number >= first), 0)
    head = list(facts.lines[start : start + FIRST_LINES])
    return head + [line for line in facts.lines[-LAST_LINES:] if not head or line.number > head[-1].number]
