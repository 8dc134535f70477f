"""What a Python exception means for the reason of a failure, and which exception of a chain is its cause.

The reason files list classes by name. What they do not list is told by errno, by the class it inherits from in the standard
library, by an HTTP status, by the words of its name (`vendor.CheckpointCorrupted`), by the library that defines it, and by where it
was raised: an exception inside `load_state_dict` is a checkpoint that cannot be loaded, whatever its class.

The last exception of a chain is often a wrapper (`DatasetGenerationError`), the first often mere control flow (a `KeyError` of a
cache). So each is weighed by what is known about it: a signature for its message counts more than its class, a class of the
operating system more than one of control flow, and what was raised `from` another is explained by that other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

from assistant.content.reading import build, knowledge_file, read_toml
from assistant.content.reasons import Reason, Role, Signature
from assistant.diagnose.readers.tracebacks import Episode, Raised, SourceFrame


@dataclass(frozen=True)
class StatusMeaning:
    """What an error number or a status code speaks for."""

    status: str
    reason: str
    weight: float
    role: Role = Role.ROOT


@dataclass(frozen=True)
class ClassEnding:
    """What classes speak for whose names end alike."""

    ends: str
    reason: str


@dataclass(frozen=True)
class ExceptionTable:
    """`knowledge/exceptions.toml`: what exceptions speak for where no signature knows their message."""

    source: str
    errno: tuple[StatusMeaning, ...]
    shared_disk_errno: tuple[int, ...]
    """Numbers that stand for trouble of the storage where the path lies on a file system that nodes share."""
    status: tuple[StatusMeaning, ...]
    symptoms: str
    """Classes that a rank raises because another one is gone."""
    endings: tuple[ClassEnding, ...]
    http: Mapping[str, str]
    """Reason by the code or the words of an answer."""
    classes: Mapping[str, str]
    """Names of classes by their reason."""
    words: Mapping[str, str]
    """Pattern for the name of a class by its reason; the first that fits."""
    libraries: Mapping[str, str]
    """Modules by the reason that their classes speak for; the first that fits."""

    @cached_property
    def by_errno(self) -> Mapping[int, StatusMeaning]:
        """Meanings by number."""
        return {int(entry.status): entry for entry in self.errno}

    @cached_property
    def by_status(self) -> Mapping[str, StatusMeaning]:
        """Meanings by status code."""
        return {entry.status: entry for entry in self.status}

    @cached_property
    def by_class(self) -> Mapping[str, str]:
        """Reason by the name of a class."""
        return {name: reason for reason, names in self.classes.items() for name in names.split()}

    @cached_property
    def symptom_classes(self) -> frozenset[str]:
        """Names of the classes that are symptoms."""
        return frozenset(self.symptoms.split())

    @cached_property
    def patterns(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """Reason and pattern, in their order."""
        return tuple((reason, re.compile(words)) for reason, words in self.words.items())

    @cached_property
    def modules(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """Reason and modules, in their order."""
        return tuple((reason, frozenset(names.split())) for reason, names in self.libraries.items())


@cache
def exception_table() -> ExceptionTable:
    """Return the shipped table of exceptions."""
    path = knowledge_file("exceptions.toml")
    return build(ExceptionTable, read_toml(path), path)


_BEARS_HTTP = re.compile(
    r"Http|HTTP|Api|API|Service|Client|Response|Request|Storage|Status|Hub|Server|Refresh|^(?:OSError|IOError|RuntimeError|Exception)$"
)
_HTTP = re.compile(
    r"\b(?:(?P<code>[45]\d\d) (?:(?:Client|Server) Error|Forbidden\b|Unauthorized\b|Not Found\b|Service Unavailable\b"
    r"|Bad Gateway\b|Gateway Time-?out\b|Too Many Requests\b|Internal Server Error\b)"
    r"|(?:[Ee]rror code|status(?:[ _]code)?|HTTP(?:/\d(?:\.\d)?)?(?: response)?(?: (?:error|code|status))*)['\"]?"
    r"[ :=]*(?P<told>[45]\d\d)\b)"
    r"|^(?P<word>Forbidden|Unauthorized|Too Many Requests|Service Unavailable|Bad Gateway|Gateway Time-?out|Internal Server Error"
    r"|Access Denied)\b"
)


def by_words(name: str) -> str | None:
    """Return the reason that an exception's name speaks for: the words of the class first, then the library; None without any.

    Args:
        name: With its module, as the traceback prints it.
    """
    parts = name.split(".")
    table = exception_table()
    for reason, words in table.patterns:
        if words.search(parts[-1]):
            return reason
    return next((reason for reason, modules in table.modules if modules & set(parts[:-1])), None)


def by_http_status(short: str, text: str) -> tuple[str, str] | None:
    """Return the reason and the status that an HTTP answer speaks for; None where the exception tells no status.

    Args:
        short: Class of the exception without its module.
        text: Its message.
    """
    match = _HTTP.search(text[:600]) if _BEARS_HTTP.search(short) else None
    if match is None:
        return None
    status = match["code"] or match["told"] or match["word"]
    if (reason := exception_table().http.get(status)) is not None:
        return reason, f"status {status}"
    later = status[0] == "5" or status in ("408", "425", "429") or not status[0].isdigit()
    return ("connection_error" if later else "value_error"), f"status {status}"


class Meaning(NamedTuple):
    """What an exception speaks for."""

    reason: str
    weight: float
    rule: str
    role: Role = Role.ROOT


_ERRNO = re.compile(r"\[Errno (\d{1,18})\]|\berrno[ =:]+(\d{1,18})|\(os error (\d{1,18})\)|\[WinError (\d{1,18})\]", re.IGNORECASE)
_STATUS = re.compile(
    r"\b(RESOURCE_EXHAUSTED|UNAVAILABLE|DEADLINE_EXCEEDED|NOT_FOUND|PERMISSION_DENIED|UNAUTHENTICATED|INVALID_ARGUMENT|DATA_LOSS"
    r"|ABORTED|CANCELLED)\b"
)
_BEARS_STATUS = re.compile(
    r"(?:XlaRuntimeError|JaxRuntimeError|Rpc\w{0,60}Error|_InactiveRpcError|AioRpcError|StatusNotOk|StatusError)$"
)
_LOADS_WEIGHTS = re.compile(
    r"load_state_dict|load_checkpoint|_load_from_checkpoint|load_pretrained|from_pretrained|_load_state|load_model|load_weights|load_optimizer|restore_|resume_from|load_sharded"
)
_WEIGHT_FILES = re.compile(
    r"orbax/|flax/training/checkpoints|tensorstore|torch/serialization|safetensors|distributed/checkpoint|dist_checkpointing|checkpoint_loader|/checkpointing\.py|modeling_utils|tokenization_\w{0,60}utils"
)
_BUILDS_DATA = re.compile(
    r"datasets/(?:builder|load|arrow_|packaged_modules|table|iterable)|indexed_dataset|pyarrow|webdataset|streaming/base|mmap_dataset"
)
_TALKS = re.compile(r"torch/distributed/(?:rendezvous|distributed_c10d|elastic/rendezvous|c10d_logger|constants)")
_OPEN_TO_PLACE = {"runtime_error", "value_error", "os_error", "type_error", "attribute_error", "index_error", "connection_error"}
_NETWORK_DISK = re.compile(
    r"/(?:lustre|gpfs|nfs|fsx|ceph\w*|beegfs|weka|azfiles|blobfuse|efs|s3fs|oss|cpfs|cfs|juicefs|jfs|panfs|petrelfs|gcs|mnt/(?:s3|blob|nfs|fuse|share\w*|petrelfs))\b"
)


_OBJECT_STORE = re.compile(
    r"\b(?:s3a?|r2|gs|gcs|oss|cos|bos|obs|tos|hdfs|viewfs|abfss?|wasbs?|az|jfs)://|\bhdfs dfs\b"
    r"|\bobject[_ -]stor(?:age|e)\b|minReplication|\bUploadPart\b"
    r"|\b(?:Put|Get|Head|List|Copy)Objects?(?:V2)?\b|\bblob\.core\.windows\.net|storage\.googleapis\.com"
)
_STORE_TROUBLE = {"runtime_error", "connection_error"}


def meaning(raised: Raised, reasons: Mapping[str, Reason]) -> Meaning:
    """Return what an exception speaks for; `runtime_error` with little weight where nothing is known about its class."""
    short, text = raised.short, f"{raised.message} {' '.join(more for _, more in raised.more[:3])}"
    class_meaning = _by_errno(short, text, raised.frames) or _by_status(short, text) or _by_name(raised, text, reasons)
    if class_meaning.reason in _STORE_TROUBLE and _OBJECT_STORE.search(text):
        return Meaning("s3_storage_error", max(class_meaning.weight, 0.65), f"{class_meaning.rule} of an object store")
    if class_meaning.role is Role.ROOT and class_meaning.reason in _OPEN_TO_PLACE:
        return _by_place(class_meaning, raised.frames)
    return class_meaning


def network_disk(text: str) -> bool:
    """Tell whether a path in the text lies on a file system that other nodes share."""
    return bool(_NETWORK_DISK.search(text))


def _by_errno(short: str, text: str, frames: Sequence[SourceFrame]) -> Meaning | None:
    match, table = _ERRNO.search(text), exception_table()
    if match is None or not (short.endswith("Error") or short in table.by_class):
        return None
    number = int(next(group for group in match.groups() if group))
    if (entry := table.by_errno.get(number)) is not None:
        return Meaning(entry.reason, entry.weight, f"errno {number}", entry.role)
    if number in table.shared_disk_errno and network_disk(text):
        return Meaning("s3_storage_error", 0.75, f"errno {number} on a shared file system")
    return Meaning("os_error", 0.75, f"errno {number}") if short in ("OSError", "IOError") or short in table.by_class else None


def _by_status(short: str, text: str) -> Meaning | None:
    match = _STATUS.search(text[:400]) if _BEARS_STATUS.search(short) else None
    if match is None:
        return None
    entry = exception_table().by_status[match.group(1)]
    return Meaning(entry.reason, entry.weight, f"status {entry.status}", entry.role)


def _by_name(raised: Raised, text: str, reasons: Mapping[str, Reason]) -> Meaning:
    short = raised.short
    rule, table = f"exception {short}", exception_table()
    if (by_status := by_http_status(short, text)) is not None:
        return Meaning(by_status[0], 0.65, f"{rule} with {by_status[1]}")
    if short in table.symptom_classes:
        return Meaning("connection_error", 0.45, rule, Role.SYMPTOM)
    for reason in reasons.values():
        if short in reason.exceptions:
            return Meaning(reason.name, 0.45 if short in ("RuntimeError", "Exception") else 0.6, rule)
    if short in table.by_class:
        return Meaning(table.by_class[short], 0.55, rule)
    for ending in table.endings:
        if short.endswith(ending.ends):
            return Meaning(ending.reason, 0.5, rule)
    if (worded := by_words(raised.name)) is not None:
        return Meaning(worded, 0.48, rule)
    return Meaning("runtime_error", 0.35, rule)


def _by_place(class_meaning: Meaning, frames: Sequence[SourceFrame]) -> Meaning:
    last = frames[-4:]
    if class_meaning.reason == "runtime_error" and last and _TALKS.search(last[-1].file):
        return Meaning("connection_error", 0.5, f"{class_meaning.rule} in torch.distributed", Role.SYMPTOM)
    if any(
        _LOADS_WEIGHTS.search(frame.function)
        or (_WEIGHT_FILES.search(frame.file) and ("load" in frame.function or "restore" in frame.function))
        for frame in last
    ):
        return Meaning("model_loading_error", max(class_meaning.weight, 0.6), f"{class_meaning.rule} while loading weights")
    if any(_BUILDS_DATA.search(frame.file) for frame in last):
        return Meaning("dataset_loading_error", max(class_meaning.weight, 0.6), f"{class_meaning.rule} while building the data set")
    return class_meaning


_CONTROL_FLOW = {
    "KeyError",
    "AttributeError",
    "IndexError",
    "StopIteration",
    "ImportError",
    "ModuleNotFoundError",
    "TypeError",
    "ValueError",
    "LookupError",
}
_OFTEN_A_SYMPTOM = "connection_error"
"""What a rank prints of another that is gone, in the same words and of the same class as a cause."""
_SLIPS = {"TypeError", "NameError", "UnboundLocalError", "AttributeError"}
"""Slips in a line of source that hardly ever runs, such as one that reports an error."""
SLIP_LINES = 12
"""Lines of source from a call that failed to the line of its handler that slips."""
SLIP, REPORTED = 0.4, 0.65
"""What is left of the weight of a slip, and the least weight of the exception that its handler was to report."""
_WRAPPED = re.compile(r"(?P<name>(?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{1,80}(?:Error|Exception)): (?P<message>.*)")
"""How a wrapper quotes the exception that it wraps: `InductorError: CalledProcessError: Command ...`."""
_OF_WRAPPERS = "runtime_error"
_FROM_OUTSIDE = {"called_process_error", "file_not_found_error", "permission_error", "out_of_memory_error", "import_error"}
"""What the environment of a program refuses, whichever part of the program passes that on."""
_COUNTS = {Role.ROOT: 1.0, Role.SYMPTOM: 0.7, Role.CASCADE: 0.5, Role.CONFIRMATION: 0.5}


class Judged(NamedTuple):
    """What one traceback speaks for."""

    reason: str
    weight: float
    role: Role
    rule: str
    line: int
    text: str
    signature: Signature | None
    more: tuple[tuple[int, str], ...]


def bare(signature: Signature) -> bool:
    """Tell whether a signature knows no more than the class of an exception; by convention its id ends with `.class`."""
    return signature.id.endswith(".class")


def judge(episode: Episode, signatures: Mapping[int, Sequence[Signature]], reasons: Mapping[str, Reason]) -> Judged:
    """Return what a traceback speaks for.

    Args:
        episode: With at least one exception.
        signatures: Signatures by number of the line that they match.
        reasons: The reasons, for their lists of exception classes.
    """
    judged = [_judged(raised, signatures, reasons) for raised in episode.raised]
    best = max(range(len(judged)), key=lambda at: (_score(episode.raised, judged, at), at))
    cause = judged[best]
    reported = best + 1 < len(judged) and is_slip(episode.raised, best + 1)
    more = [(raised.line, raised.text) for raised in reversed(episode.raised) if raised.line != cause.line]
    weight = max(cause.weight, REPORTED) if reported else cause.weight
    return cause._replace(weight=weight, more=(*cause.more, *more))


def _score(chain: Sequence[Raised], judged: Sequence[Judged], at: int) -> float:
    score = judged[at].weight * _COUNTS.get(judged[at].role, 0.2)
    final = at == len(chain) - 1
    if final:
        return score * (0.95 if chain[at].cause else SLIP if is_slip(chain, at) else 1.0)
    explains = chain[at + 1].cause
    if chain[at].short in _CONTROL_FLOW and not explains:
        return score * 0.55
    return score


def is_slip(chain: Sequence[Raised], at: int) -> bool:
    """Tell whether an exception is a slip in the handler of the one before it: that one is what the handler was to report.

    The handler stands in the function whose call had failed, a few lines below that call.
    """
    if at == 0 or chain[at].short not in _SLIPS or chain[at - 1].short in _CONTROL_FLOW:
        return False
    failed, slip = chain[at - 1].frames[:1], chain[at].frames[-1:]
    return any(
        (call.file, call.function) == (own.file, own.function) and 0 < own.line - call.line <= SLIP_LINES
        for call in failed
        for own in slip
    )


def _wrapped(raised: Raised, reasons: Mapping[str, Reason]) -> Meaning | None:
    """Return what the exception speaks for that an exception quotes as its message, where the environment refused something."""
    match = _WRAPPED.match(raised.message)
    if match is None:
        return None
    inner = meaning(replace(raised, name=match["name"], message=match["message"]), reasons)
    return inner if inner.reason in _FROM_OUTSIDE else None


def _judged(raised: Raised, signatures: Mapping[int, Sequence[Signature]], reasons: Mapping[str, Reason]) -> Judged:
    wrapped = _wrapped(raised, reasons)
    fallback = wrapped or meaning(raised, reasons)
    best: tuple[float, int, str, Signature] | None = None
    for number, text in ((raised.line, raised.text), *raised.more):
        for signature in signatures.get(number, ()):
            if signature.role in (Role.TEARDOWN, Role.BENIGN, Role.RECOVERED) or bare(signature):
                continue
            if wrapped is not None and signature.id.startswith(f"{_OF_WRAPPERS}."):
                continue
            value = signature.weight * (1.0 if number == raised.line else 0.97)
            if best is None or value > best[0]:
                best = value, number, text, signature
    by_number = fallback.rule.startswith("errno")
    same = best is not None and best[3].id.partition(".")[0] == fallback.reason
    if best is None or (best[0] < fallback.weight and by_number and not same):
        return Judged(fallback.reason, fallback.weight, fallback.role, fallback.rule, raised.line, raised.text, None, ())
    value, number, text, signature = best
    more = ((raised.line, raised.text),) if number != raised.line else ()
    reason = signature.id.partition(".")[0]
    if (
        fallback.rule.endswith(("loading weights", "building the data set"))
        and signature.weight < 0.75
        and signature.role is Role.ROOT
    ):
        reason = fallback.reason
    role = signature.role
    if same and reason != _OFTEN_A_SYMPTOM and fallback.role is Role.ROOT and fallback.weight > value * _COUNTS.get(role, 0.2):
        # words that may stand in a mere notice are the exception's own here
        value, role = max(value, fallback.weight), fallback.role
    return Judged(reason, value, role, signature.id, number, text, signature, more)
