"""What a Python exception class means when no signature knows its message.

The reason files list classes by name. What they do not list is told by errno, by the class it inherits from in the standard
library, by the family that its name ends with, and by where it was raised: an exception inside `load_state_dict` is a checkpoint
that cannot be loaded, whatever its class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from assistant.content.reasons import Reason, Role
from assistant.diagnose.families import by_http_status, by_words
from assistant.diagnose.readers.tracebacks import Frame, Raised


class Meaning(NamedTuple):
    """What an exception speaks for."""

    reason: str
    weight: float
    rule: str
    role: Role = Role.ROOT


_ERRNO = re.compile(r"\[Errno (\d{1,18})\]|\berrno[ =:]+(\d{1,18})|\(os error (\d{1,18})\)|\[WinError (\d{1,18})\]", re.IGNORECASE)
_ERRNOS: Mapping[int, tuple[str, float, Role]] = {
    1: ("permission_error", 0.8, Role.ROOT),
    2: ("file_not_found_error", 0.85, Role.ROOT),
    12: ("out_of_memory_error", 0.85, Role.ROOT),
    13: ("permission_error", 0.85, Role.ROOT),
    32: ("connection_error", 0.4, Role.SYMPTOM),
    98: ("os_error", 0.6, Role.ROOT),
    101: ("network_error", 0.7, Role.ROOT),
    104: ("connection_error", 0.5, Role.SYMPTOM),
    110: ("connection_error", 0.6, Role.ROOT),
    111: ("connection_error", 0.6, Role.ROOT),
    113: ("network_error", 0.7, Role.ROOT),
}
_NETWORK_DISK_ERRNOS = {5, 107, 108, 112, 116, 121, 512, 521}
_PARENTS = {
    "ModuleNotFoundError": "import_error", "DLLError": "import_error", "NotImplementedError": "runtime_error",
    "RecursionError": "runtime_error",
    "UnboundLocalError": "name_error", "IndentationError": "syntax_error", "TabError": "syntax_error",
    "UnicodeDecodeError": "value_error",
    "UnicodeEncodeError": "value_error", "JSONDecodeError": "value_error", "OverflowError": "value_error",
    "FloatingPointError": "runtime_error",
    "ArithmeticError": "zero_division_error", "LookupError": "key_error", "IsADirectoryError": "os_error",
    "NotADirectoryError": "os_error",
    "FileExistsError": "os_error", "BlockingIOError": "os_error", "ChildProcessError": "os_error",
    "ProcessLookupError": "os_error", "IOError": "os_error",
    "EnvironmentError": "os_error", "InterruptedError": "os_error", "ConnectionRefusedError": "connection_error",
    "TimeoutError": "connection_error",
    "MemoryError": "out_of_memory_error", "ArgumentError": "argument_error", "ArgumentTypeError": "argument_error",
    "TimeoutExpired": "called_process_error",
    "UnpicklingError": "model_loading_error", "BadZipFile": "model_loading_error", "ScannerError": "syntax_error",
    "ParserError": "syntax_error",
    "ValidationError": "value_error", "CheckpointException": "model_loading_error", "SafetensorError": "model_loading_error",
    "URLError": "connection_error",
    "HTTPError": "connection_error", "gaierror": "network_error", "HfHubHTTPError": "connection_error",
    "ArrowInvalid": "dataset_loading_error",
    "ArrowTypeError": "dataset_loading_error", "DatasetGenerationError": "dataset_loading_error",
    "DataLossError": "dataset_loading_error", "ReadTimeout": "connection_error", "ConnectTimeout": "connection_error",
    "SSLError": "connection_error", "ProxyError": "connection_error", "UnavailableError": "connection_error",
    "DeadlineExceededError": "connection_error", "InvalidArgumentError": "value_error", "UnimplementedError": "runtime_error",
    "DomainError": "value_error", "InexactError": "value_error", "DimensionMismatch": "value_error", "BoundsError": "index_error",
    "MethodError": "type_error", "UndefVarError": "name_error", "UndefRefError": "attribute_error",
}  # fmt: skip
_SYMPTOMS = {
    "BrokenPipeError", "ConnectionResetError", "ConnectionAbortedError", "EOFError", "DistNetworkError", "DistStoreError",
    "RendezvousConnectionError",
    "RendezvousTimeoutError", "RendezvousClosedError", "IncompleteReadError", "RemoteDisconnected", "HorovodInternalError",
}  # fmt: skip
_FAMILIES = (
    ("OutOfMemoryError", "out_of_memory_error"), ("MemoryError", "out_of_memory_error"),
    ("FileNotFoundError", "file_not_found_error"),
    ("NotFoundError", "file_not_found_error"), ("PermissionError", "permission_error"), ("AccessDenied", "permission_error"),
    ("ConnectionError", "connection_error"), ("TimeoutError", "connection_error"), ("ConnectTimeout", "connection_error"),
    ("ImportError", "import_error"), ("KeyError", "key_error"), ("AttributeError", "attribute_error"),
    ("IndexError", "index_error"),
    ("TypeError", "type_error"), ("ValueError", "value_error"), ("AssertionError", "assertion_error"),
    ("SyntaxError", "syntax_error"),
    ("ParseError", "syntax_error"), ("ArgumentError", "argument_error"), ("OptionError", "argument_error"),
    ("UsageError", "argument_error"),
    ("ConfigurationError", "value_error"), ("ConfigError", "value_error"), ("DivisionError", "zero_division_error"),
    ("OSError", "os_error"),
)  # fmt: skip
_STATUS = re.compile(
    r"\b(RESOURCE_EXHAUSTED|UNAVAILABLE|DEADLINE_EXCEEDED|NOT_FOUND|PERMISSION_DENIED|UNAUTHENTICATED|INVALID_ARGUMENT|DATA_LOSS"
    r"|ABORTED|CANCELLED)\b"
)
_STATUSES: Mapping[str, tuple[str, float, Role]] = {
    "RESOURCE_EXHAUSTED": ("out_of_memory_error", 0.7, Role.ROOT),
    "UNAVAILABLE": ("connection_error", 0.65, Role.ROOT),
    "DEADLINE_EXCEEDED": ("connection_error", 0.65, Role.ROOT),
    "NOT_FOUND": ("file_not_found_error", 0.65, Role.ROOT),
    "PERMISSION_DENIED": ("permission_error", 0.7, Role.ROOT),
    "UNAUTHENTICATED": ("permission_error", 0.7, Role.ROOT),
    "INVALID_ARGUMENT": ("value_error", 0.6, Role.ROOT),
    "DATA_LOSS": ("dataset_loading_error", 0.65, Role.ROOT),
    "ABORTED": ("connection_error", 0.4, Role.SYMPTOM),
    "CANCELLED": ("connection_error", 0.4, Role.SYMPTOM),
}
"""The status codes that gRPC, XLA and TensorFlow print before their messages."""
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


def meaning(raised: Raised, known: Mapping[str, Reason]) -> Meaning:
    """Return what an exception speaks for; `runtime_error` with little weight where nothing is known about its class."""
    short, text = raised.short, f"{raised.message} {' '.join(more for _, more in raised.more[:3])}"
    found = _by_errno(short, text, raised.frames) or _by_status(short, text) or _by_name(raised, text, known)
    if found.reason in _STORE_TROUBLE and _OBJECT_STORE.search(text):
        return Meaning("s3_storage_error", max(found.weight, 0.65), f"{found.rule} of an object store")
    if found.role is Role.ROOT and found.reason in _OPEN_TO_PLACE:
        return _by_place(found, raised.frames)
    return found


def network_disk(text: str) -> bool:
    """Tell whether a path in the text lies on a file system that other nodes share."""
    return bool(_NETWORK_DISK.search(text))


def _by_errno(short: str, text: str, frames: Sequence[Frame]) -> Meaning | None:
    match = _ERRNO.search(text)
    if match is None or not (short.endswith("Error") or short in _PARENTS):
        return None
    number = int(next(group for group in match.groups() if group))
    if number in _ERRNOS:
        reason, weight, role = _ERRNOS[number]
        return Meaning(reason, weight, f"errno {number}", role)
    if number in _NETWORK_DISK_ERRNOS and network_disk(text):
        return Meaning("s3_storage_error", 0.75, f"errno {number} on a shared file system")
    return Meaning("os_error", 0.75, f"errno {number}") if short in ("OSError", "IOError") or short in _PARENTS else None


def _by_status(short: str, text: str) -> Meaning | None:
    match = _STATUS.search(text[:400]) if _BEARS_STATUS.search(short) else None
    if match is None:
        return None
    reason, weight, role = _STATUSES[match.group(1)]
    return Meaning(reason, weight, f"status {match.group(1)}", role)


def _by_name(raised: Raised, text: str, known: Mapping[str, Reason]) -> Meaning:
    short = raised.short
    rule = f"exception {short}"
    if (told := by_http_status(short, text)) is not None:
        return Meaning(told[0], 0.65, f"{rule} with {told[1]}")
    if short in _SYMPTOMS:
        return Meaning("connection_error", 0.45, rule, Role.SYMPTOM)
    for reason in known.values():
        if short in reason.exceptions:
            return Meaning(reason.name, 0.45 if short in ("RuntimeError", "Exception") else 0.6, rule)
    if short in _PARENTS:
        return Meaning(_PARENTS[short], 0.55, rule)
    for ending, name in _FAMILIES:
        if short.endswith(ending):
            return Meaning(name, 0.5, rule)
    if (worded := by_words(raised.name)) is not None:
        return Meaning(worded, 0.48, rule)
    return Meaning("runtime_error", 0.35, rule)


def _by_place(found: Meaning, frames: Sequence[Frame]) -> Meaning:
    last = frames[-4:]
    if found.reason == "runtime_error" and last and _TALKS.search(last[-1].file):
        return Meaning("connection_error", 0.5, f"{found.rule} in torch.distributed", Role.SYMPTOM)
    if any(
        _LOADS_WEIGHTS.search(frame.function)
        or (_WEIGHT_FILES.search(frame.file) and ("load" in frame.function or "restore" in frame.function))
        for frame in last
    ):
        return Meaning("model_loading_error", max(found.weight, 0.6), f"{found.rule} while loading weights")
    if any(_BUILDS_DATA.search(frame.file) for frame in last):
        return Meaning("dataset_loading_error", max(found.weight, 0.6), f"{found.rule} while building the data set")
    return found
