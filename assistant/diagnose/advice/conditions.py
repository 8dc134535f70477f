"""Fill the slots that templates of advice are conditional on: what has to be shown before a thing may be spoken of.

An embedding where an embedding was called, a linear layer where one is in the traceback, a type where the message names it. What
can be worked out of the numbers of a message (which axis, which size fits, which of two is transposed) is a slot, too.

What libraries show of a failure between them is read here as well: which called what of which other, and which of their checks did
not hold. The job's own code cannot mend what two installed packages disagree about, so that is told as what it is; and an exception
without a message says what was wanted by the condition that stands where it was raised.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from assistant.content.reading import package_for
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import named_setting
from assistant.diagnose.readers.expressions import nodes_of
from assistant.diagnose.readers.origin import LIBRARY, Origin, package_of, source_of
from assistant.diagnose.readers.tracebacks import Episode, Raised, SourceFrame

DEEPEST_CHECK = 3
"""Frames from the innermost on in which the condition of a check may stand: helpers that only raise come behind it."""
_FUNCTION = re.compile(r"([\w.<>]{1,120})\(\) (?:missing \d|takes \d|got )")
_SELVES = frozenset({"self", "cls", "super"})
_ASSERTS = re.compile(r"assert\s+(.{3,120}?)(?:,\s*f?['\"(].*)?$")
_OR_RAISES = re.compile(r"(.{3,120}?)\s+or\s+_?raise\w*\(")
_NO_MESSAGE = re.compile(r"^[\w.]{1,120}(?:Error|Exception):?\s*$")
_TWO_SIZES = re.compile(r"tensor a \((\d{1,9})\) must match the size of tensor b \((\d{1,9})\) at non-singleton dimension [2-4]")
_APART = re.compile(r"tensor a \((\d{1,9})\) must match the size of tensor b \((\d{1,9})\)")
_POSITIONS = re.compile(
    r"(?<!\w)((?:self\.)?\w*(?:pos_?emb|position_?emb|positional_?emb|pos_?enc|positional_enc|position_enc)\w*)", re.IGNORECASE
)
_RESAMPLES = re.compile(r"interpolate|[Uu]p_?sampl|scale_factor|ConvTranspose|deconv|\bup\d?\(|torch\.cat\(|skip")
MOST_CELLS_OFF = 2
"""Most cells by which an axis is off where layers with a stride round it."""


class LibraryCheck(NamedTuple):
    """A condition inside a library that did not hold."""

    condition: str
    place: str
    """`file:line`."""


def check_of(text: str, frames: Sequence[SourceFrame], facts: Facts) -> LibraryCheck | None:
    """Return the check of a library by which an exception without a message was raised; None where no line shows one.

    Args:
        text: The message, its class in front.
        frames: Of the exception, the innermost last.
        facts: Of the case.
    """
    if not _NO_MESSAGE.match(text.strip()):
        return None
    for frame in list(reversed(frames))[:DEEPEST_CHECK]:
        if not package_of(frame.file):
            return None
        source = source_of(frame, facts)
        match = _ASSERTS.match(source) or _OR_RAISES.match(source)
        if match is not None:
            return LibraryCheck(match[1].strip(), f"{frame.file}:{frame.line}")
    return None


def between_libraries(text: str, origin: Origin) -> dict[str, str]:
    """Return the package of which a library called a function that takes other arguments; empty where it is not plain.

    Only what a line of the library itself calls by its module counts: else the function may be the job's own.
    """
    match = _FUNCTION.search(text)
    if match is None or not origin.library or not origin.deepest:
        return {}
    function = match[1].rpartition(".")[2]
    modules = {module_of(node.func) for node in nodes_of(origin.deepest) if isinstance(node, ast.Call) and _calls(node, function)}
    module = modules.pop() if len(modules) == 1 else ""
    if module in ("", origin.library) or module in _SELVES:
        return {}
    return {"callee": package_for(module) or module}


def _calls(node: ast.Call, function: str) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == function


def module_of(node: ast.expr) -> str:
    """Return the name with which a chain of attributes begins; empty where it begins with a call or an element."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def resampled(text: str, source: str) -> dict[str, str]:
    """Return by how many cells two feature maps differ that a line joins, or the table of positions that it adds; else nothing."""
    if _APART.search(text) and (embedding := _POSITIONS.search(source)):
        return {"positions": embedding[1]}
    match = _TWO_SIZES.search(text)
    if match is None or not _RESAMPLES.search(source):
        return {}
    apart = abs(int(match[1]) - int(match[2]))
    return {"rounded": str(apart)} if 0 < apart <= MOST_CELLS_OFF else {}


MOST_OF_LINE, MOST_LINES = 600, 4000
MOST_ELEMENTS, MOST_ALIKE, MOST_CHANNELS, LEAST_SAMPLES = 10**15, 3, 4, 1000
_STACKED = re.compile(r"\[(\d{1,9}(?:, \d{1,9}){1,5})\] at entry \d")
_EMBEDS = re.compile(r"([\w.\[\]]{0,60}(?:[Ee]mbed\w{0,30}|\bemb\w{0,20}|\bwte|\bwpe))\(")
_EMBEDDING = re.compile(r"torch\.embedding\(|F\.embedding\(|embedding_lookup|EmbeddingBag")
_LINEAR = re.compile(r"\bF\.linear\(|\baddmm\(|_C\._nn\.linear\(")
_PRODUCT = re.compile(r"(\d{1,9}) ?x ?(\d{1,9})(?: and |\], m2: \[)(\d{1,9}) ?x ?(\d{1,9})")
_VIEW = re.compile(r"shape '\[([-\d, ]{1,120})\]' is invalid for input of size (\d{1,15})\b")
_RESHAPE = re.compile(r"cannot reshape array of size (\d{1,15}) into shape \((-?\d[-\d, ]{0,80})\)")
_SIZES = re.compile(r"torch\.Size\(\[([\d, ]{1,80})\]\)")
_NUMBER = re.compile(r"(?:base 10|to float): ['\"](?P<text>.{0,80}?)['\"]")
_DECIMAL = re.compile(r"\s*[+-]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][+-]?\d+)\s*")
_COLLATE = re.compile(r"collate", re.IGNORECASE)
_TYPES_NAMED = re.compile(
    r"(?:must be|should be|expected|takes|wants) (?:an? )?(?P<want>[A-Za-z][\w. ]{1,40}?)"
    r"(?: as element \d{1,6} in argument \d{1,3})?(?:,? (?:not|but (?:got|found|received|was))|, (?:got|found|received))"
    r"(?: type)?:? (?:an? )?(?:<class ')?(?P<got>[A-Za-z][\w.]{1,60})"
    r"|following scalar types: (?P<kinds>[\w, ]{2,60}); but got (?P<kind>[\w.]{3,40})"
    r"|only (?:supports?|accepts?|takes|works with)(?: \w{1,20}){0,4}? (?P<only>[^;\n]{3,80}?),? but "
    r"(?:got|found|received|was given)(?: type)?:? (?:an? )?(?:<class ')?(?P<other>[A-Za-z][\w.]{1,60})"
)
_TOKENIZED = "BatchEncoding"
_GIVES = re.compile(r"^(?:await )?([A-Za-z_][\w.]{0,80})\(.{0,200}\)$")
_HUB, _TRACKER = re.compile(r"huggingface\.co|hf\.co"), re.compile(r"wandb\.ai")
_SHARES = re.compile(r"torch[/\\]multiprocessing|torch\.multiprocessing|DataLoader|dataloader\.py|/dev/shm/torch_")
_INCOMPATIBLE = re.compile(r"CUDA capability (sm_\d{2,3}\w?) is not compatible with the current PyTorch")
_HOLDS = re.compile(r"PyTorch install supports CUDA capabilities ((?:(?:sm|compute)_\d{2,3}\w? ?){1,20})")
_SINCE = {"sm_75": "10.0", "sm_80": "11.0", "sm_86": "11.1", "sm_89": "11.8", "sm_90": "11.8", "sm_100": "12.8", "sm_120": "12.8"}
"""By architecture of a GPU: the first CUDA whose compiler makes code for it, from its release notes."""
_READS = frozenset({"__getitem__", "__getitems__", "_worker_loop"})
_OF_PEERS = frozenset("torch multiprocessing ray mpi4py horovod deepspeed jax tensorflow subprocess socket".split())
"""Packages whose connections are those between processes of one job."""
_PLAIN_CLIENTS = frozenset("requests urllib3 httpx httpcore aiohttp urllib http websockets grpc".split())
_SERVICES = {
    "qdrant_client": "Qdrant", "pymongo": "MongoDB", "motor": "MongoDB", "redis": "Redis", "psycopg2": "PostgreSQL",
    "psycopg": "PostgreSQL", "asyncpg": "PostgreSQL", "pymysql": "MySQL", "MySQLdb": "MySQL", "elasticsearch": "Elasticsearch",
    "elastic_transport": "Elasticsearch", "opensearchpy": "OpenSearch", "chromadb": "Chroma", "pymilvus": "Milvus",
    "weaviate": "Weaviate", "neo4j": "Neo4j", "ollama": "Ollama", "openai": "the server with the API of OpenAI", "mlflow": "MLflow",
    "pika": "RabbitMQ", "kafka": "Kafka", "docker": "Docker", "visdom": "Visdom", "botocore": "the object store",
}  # fmt: skip
"""By the package of a client: what it is a client of."""
_ADDRESS = re.compile(
    r"host='([\w.:-]{1,120})', port=(\d{2,5})|\b(localhost|(?:\d{1,3}\.){3}\d{1,3}|[\w-]{1,60}(?:\.[\w-]{1,60}){1,6}):(\d{2,5})\b"
)
_OOM_STEP = re.compile(r"oom[-_]kill event.{0,20} in (?:StepId=|step )(\d{2,12})")
_OOM_TASK = re.compile(r"error: ([\w.-]{1,80}): tasks? ([\d,-]{1,80}): Out Of Memory")
_NAN_BACKWARD = re.compile(r"Function '\w{1,80}' returned nan values")
_FORWARD = re.compile(r"Error detected in \w{1,80}\. Traceback of forward call")
_FRAME = re.compile(r'\s+File "([^"]{1,300})", line (\d{1,9})')
_UNSOUND = re.compile(r"RuntimeWarning: (?:invalid value|overflow|divide by zero) encountered")
MOST_JOBS, MOST_FRAMES = 12, 80
_CHECKS = (
    (
        re.compile(r"srcSelectDimSize|indexSelect|[Ee]mbedding"),
        "an id (token, position, class) beyond the rows of its embedding",
        "compare the smallest and the largest id that goes in with the rows of the embedding",
    ),
    (
        re.compile(r"input_val >= zero|BinaryCrossEntropy|BCECriterion|>= 0\.? && \S{1,40} <= 1\.?"),
        "a value outside 0 to 1, or NaN, where a binary cross entropy wants a probability",
        "print the smallest and the largest value that goes into that loss; a sigmoid before it keeps them in, or take the loss "
        "with logits",
    ),
    (
        re.compile(r"multinomial|cumdist|probability|Distributions"),
        "probabilities that are NaN, negative or all zero, to sample from",
        "look at the numbers that they are made of (NaN in the outputs, a temperature of 0, a row that is masked whole)",
    ),
    (
        re.compile(r"n_classes|nll_loss|NLLLoss|cur_target|\bLoss\.cu"),
        "a label outside 0 to the number of classes",
        "compare the smallest and the largest label with the number of outputs, and see what marks those to be left out "
        "(ignore_index)",
    ),
    (
        re.compile(r"totalElements <= srcSize|masked_scatter"),
        "fewer elements to be put in than the mask has places (masked_scatter)",
        "compare the number of places that are marked with the number of elements that are to fill them, for the input at "
        "which it came",
    ),
    (
        re.compile(r"sizes\[i\]|idx_dim|index out of bounds|ScatterGather"),
        "an index beyond the size of its dimension",
        "print the smallest and the largest index that goes in beside the size of what it indexes; a search that finds "
        "nothing, and NaN turned into a number, give such ones, too",
    ),
)
"""By the text of a failed check of PyTorch's kernels (aten/src/ATen/native/cuda): what it refuses, and what to look at."""
_ANY_CHECK = ("an index or value out of its range", "print the smallest and the largest value that goes in there, and its shape")


def refused_by(text: str) -> tuple[str, str]:
    """Return what a kernel of PyTorch refuses by a check, and what to look at, from its file, its name and the condition."""
    return next(((words, compare) for pattern, words, compare in _CHECKS if pattern.search(text)), _ANY_CHECK)


def conditions_of(
    text: str,
    origin: Origin | None,
    facts: Facts,
    raised: tuple[Episode, Raised] | None,
    subject: str,
    line: int,
    frames: Sequence[SourceFrame],
) -> dict[str, str]:
    """Return the conditions that a case meets, each with the words that are said of it; none that no line shows.

    Args:
        text: The message.
        origin: Where it was raised.
        facts: Of the case.
        raised: The exception with its traceback.
        subject: The expression that the message complains of, or empty.
        line: Of the message in the log.
        frames: Of its traceback, with those that its message quotes.
    """
    slots = {**_of_numbers(text), **_of_sizes(text), **_of_types(text), **_of_peers(text)}
    if origin is not None:
        slots |= between_libraries(text, origin) | resampled(text, origin.code)
        slots |= _of_layers(f"{origin.code} {origin.deepest}", origin)
        if match := _GIVES.match(subject):
            slots["returned"] = f"it is what {match[1]}() gives"
    if any(_COLLATE.search(frame.function) for frame in frames):
        slots["collated"] = "the loader"
    if "open files" in text and any(_SHARES.search(words) for words in (text, *(frame.file for frame in frames))):
        slots["sharing"] = "torch.multiprocessing"
    if any(frame.function in _READS for frame in frames) or (origin is not None and origin.function in _READS):
        slots["reader_at"] = _reader(origin)
    if "onnection refused" in text or "Errno 111" in text or "ECONNREFUSED" in text:
        slots |= _of_service(text, raised, facts)
    if "ddress already in use" in text and origin is not None and origin.library == "torch":
        slots["store_port"] = "MASTER_PORT"
    if origin is not None and origin.library and (check := check_of(text, frames, facts)) is not None:
        slots |= _of_check(origin, check, line, facts)
    if "no kernel image" in text:
        slots |= _of_architecture(facts)
    return {name: value for name, value in slots.items() if value}


def _reader(origin: Origin | None) -> str:
    """Return where the job's own code read an entry of a data set; empty where only a library's frames show."""
    return f"{origin.place} in {origin.function}()" if origin is not None and origin.own else ""


def doubled_part(path: str) -> str:
    """Return the part of a path that stands twice in a row, as `set/set`; empty where none does."""
    names = [name for name in path.split("/") if name]
    pairs = [(first, second) for first, second in pairwise(names) if first == second and len(first) > 1]
    return "/".join(pairs[0]) if pairs else ""


def _of_service(text: str, raised: tuple[Episode, Raised] | None, facts: Facts) -> dict[str, str]:
    """Return which service the job's own code asked and where, in a program that has made no step yet; none for its own peers."""
    if raised is None or facts.progress.steps or facts.points:
        return {}
    for exception in reversed(raised[0].raised):
        for own, called in pairwise(exception.frames):
            package = package_of(called.file)
            if LIBRARY.search(own.file) or not package or package in _OF_PEERS:
                continue
            name = "the service" if package in _PLAIN_CLIENTS else _SERVICES.get(package, package.removesuffix("_client"))
            match = _ADDRESS.search(text)
            return {"service_name": name, "address": f"{match[1] or match[3]}:{match[2] or match[4]}" if match else ""}
    return {}


def _of_check(origin: Origin, check: LibraryCheck, line: int, facts: Facts) -> dict[str, str]:
    """Return a check inside a library that did not hold, with the settings of the log that it is about."""
    condition = check.condition
    values: list[str] = []
    for name in dict.fromkeys(re.findall(r"(?<![\w.])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?!\w*\()", condition)):
        parts = name.split("_")
        shorter = ("_".join(parts[:count]) for count in range(len(parts), 1, -1))
        value = next((printed for short in shorter if (printed := named_setting(facts, short, line)) is not None), None)
        values += [str(value)] if value is not None else []
    visible = "what this process sees of GPUs (nvidia-smi, CUDA_VISIBLE_DEVICES)" if "cuda.device_count()" in condition else ""
    against = f" against {visible}" if visible else ""
    compared = (
        f"the log prints {', '.join(values)}{f', which stands{against}' if against else ''}"
        if values
        else visible and f"see{against}"
    )
    at = f"{origin.library}, {check.place}"
    return {"inner_check": condition, "checked_at": at, "checked_values": compared}


def _of_numbers(text: str) -> dict[str, str]:
    match = _NUMBER.search(text)
    if match is None:
        return {}
    if not match["text"].strip():
        return {"nothing": "nothing"}
    return {"whole": match["text"]} if "int()" in text and _DECIMAL.fullmatch(match["text"]) else {}


def _of_sizes(text: str) -> dict[str, str]:
    slots = {"swapped": sizes_swapped(text), "channels": channels_apart(text)}
    if match := _PRODUCT.search(text):
        rows, have, want, out = (int(number) for number in match.groups())
        if have == out:
            slots["transposed"] = f"the second is {want} x {out} and fits once it is transposed (.T)"
        elif rows == want:
            slots["transposed"] = f"the first is {rows} x {have} and fits once it is transposed (.T)"
    if match := _VIEW.search(text):
        slots |= _of_view([int(number) for number in match[1].split(",") if number.strip()], int(match[2]))
    if match := _RESHAPE.search(text):
        slots |= _of_view([int(number) for number in match[2].split(",") if number.strip()], int(match[1]))
    sizes = [
        [int(number) for number in listed.split(",") if number.strip()]
        for listed in _SIZES.findall(text.partition("size mismatch for")[2])[:2]
    ]
    if len(sizes) == 2 and len(sizes[0]) == len(sizes[1]):
        apart = [(axis, *pair) for axis, pair in enumerate(zip(*sizes, strict=True)) if pair[0] != pair[1]]
        slots["axes"] = ", ".join(f"axis {axis} ({first} and {second})" for axis, first, second in apart[:MOST_ALIKE])
        slots["outputs"] = "outputs" if [axis for axis, _, _ in apart] == [0] else ""
    return slots


def _of_view(shape: Sequence[int], size: int) -> dict[str, str]:
    """Return how many elements a shape asks for, and which one of its sizes another number in place of would fit."""
    whole = math.prod(shape)
    if any(number < 1 for number in shape) or whole > MOST_ELEMENTS or whole == size:
        return {}
    for place, number in enumerate(shape):
        remaining = whole // number
        if size % remaining == 0 and size // remaining:
            fitting = f"with {size // remaining} in place of {number} it fits (axis {place})"
            fits = f"{fitting}: take that size from the tensor itself (x.shape, or -1)"
            return {"asked": f"{whole} elements", "fits": fits}
    return {"asked": f"{whole} elements", "fits": "no other number for one of its sizes fits, so look at the shape that comes in"}


def channels_apart(text: str) -> str:
    """Return how the samples that are to be stacked come to one number of channels; empty where another axis differs."""
    shapes = [[int(number) for number in listed.split(",")] for listed in _STACKED.findall(text)[:2]]
    if len(shapes) != 2 or len(shapes[0]) != len(shapes[1]):
        return ""
    apart = [(axis, *pair) for axis, pair in enumerate(zip(*shapes, strict=True)) if pair[0] != pair[1]]
    if len(apart) != 1 or max(apart[0][1:]) > MOST_CHANNELS or math.prod(shapes[0]) < LEAST_SAMPLES:
        return ""
    axis, first, second = apart[0]
    numbers = f"axis {axis} has {first} in one and {second} in the other"
    if {first, second} == {1, 2}:
        return f"{numbers}, as mono and stereo sound have: take the mean of the two, or repeat the one"
    return f"{numbers}, as grey, RGB and RGBA images have: .convert('RGB'), or repeat the one and drop the alpha"


def sizes_swapped(text: str) -> str:
    """Return that two arrays have the same sizes in another order, as after a transposition; empty where none shows it.

    Two shapes of two axes count, and one shape beside two lengths, which may be one more each (edges beside cells).
    """
    shapes = [(int(first), int(second)) for first, second in re.findall(r"[\[(](\d{1,9}), ?(\d{1,9})[\])]", text)]
    singles = [int(number) for number in re.findall(r"\((\d{1,9})\)", text)]
    if len(shapes) == 2 and shapes[0] == shapes[1][::-1] and shapes[0][0] != shapes[0][1]:
        return f"one of the two is the other transposed ({shapes[0]} and {shapes[1]}): turn one of them (.T)"
    if len(shapes) == 1 and len(singles) == 2 and shapes[0][0] != shapes[0][1]:
        for more in (0, 1):
            if sorted(number + more for number in shapes[0]) == sorted(singles):
                extra = " (each one more)" if more else ""
                return (
                    f"the sizes are the same ones in another order, {shapes[0]} against {singles[0]} and {singles[1]}{extra}: "
                    "transpose the one with two axes (.T), or swap the other two"
                )
    return ""


def _of_types(text: str) -> dict[str, str]:
    types = types_of(text)
    if types is None:
        return {}
    want, got = types
    if got.endswith(_TOKENIZED):
        return {"tokenized": '["input_ids"] of what the tokenizer returns'}
    words = conversion(want, got)
    return {"conversion": words, "want": want, "got": got} if words else {}


def types_of(text: str) -> tuple[str, str] | None:
    """Return the type that a message wants and the one that it got; None where it does not name both."""
    match = _TYPES_NAMED.search(text[:MOST_OF_LINE])
    if match is None:
        return None
    return (match["want"] or match["kinds"] or match["only"]).strip(" `'\""), match["got"] or match["kind"] or match["other"]


def conversion(want: str, got: str) -> str:
    """Return how a value of one type becomes one of the wanted type, as an order; empty where that is not plain.

    Args:
        want: As a message says it: one type, several, or what the value is (`file`).
        got: Name of the type, with or without its module.
    """
    have, target = got.rpartition(".")[2], want.lower()
    if have == "NoneType":
        return "it is None, so look at what should have made it"
    if have in ("PosixPath", "WindowsPath", "Path", "PurePosixPath") and re.search(r"\bstr|\bfile|\bpath|\bbytes", target):
        return "hand it over as text, str(...)"
    return next((words for target_type, names, words in _INTO if have in names.split() and target_type.search(target)), "")


_TENSORS = re.compile(r"tensor")
_INTO = (
    (re.compile(r"\blong\b"), "FloatTensor DoubleTensor HalfTensor IntTensor Float Int", "call .long() on what goes in"),
    (re.compile(r"^float(?:,|$)|^half"), "LongTensor IntTensor Long Int", "call .float() on what goes in"),
    (re.compile(r"^float$"), "str", "convert it with float() where it is read"),
    (_TENSORS, "ndarray", "make it a tensor before (torch.from_numpy)"),
    (_TENSORS, "list", "make one tensor of the list before (torch.stack of tensors, torch.tensor of numbers)"),
    (_TENSORS, "tuple", "take the element that is meant out of the tuple, or make one tensor of it before"),
    (_TENSORS, "dict", "take the entry that is meant out of it by its key"),
    (_TENSORS, "str", "texts become no tensor: keep them as a list beside the tensors (names, paths), or encode them as numbers"),
    (_TENSORS, "int float", "make it a tensor before (torch.tensor)"),
    (re.compile(r"\bint\b|integer"), "float str", "convert it with int() where it is made"),
    (re.compile(r"\bbytes\b"), "str", "encode it before (.encode())"),
    (re.compile(r"\bstr\b|\bstring"), "bytes", "decode it before (.decode())"),
    (re.compile(r"\bstr\b|\bstring"), "int float", "write str(...) around it"),
    (re.compile(r"array|numpy"), "Tensor", "bring it to NumPy before (.detach().cpu().numpy())"),
    (re.compile(r"array|numpy"), "list", "make an array of it before (np.asarray)"),
)
"""By a word of what is wanted and the name of the type that came: how it is converted."""


def _of_peers(text: str) -> dict[str, str]:
    if _HUB.search(text):
        return {"offline": "HF_HUB_OFFLINE=1"}
    return {"offline": "WANDB_MODE=offline"} if _TRACKER.search(text) else {}


def _of_layers(source: str, origin: Origin) -> dict[str, str]:
    slots: dict[str, str] = {}
    if match := _EMBEDS.search(origin.code):
        slots["embedding"] = f"`{match[1]}`"
    elif _EMBEDDING.search(source):
        slots["embedding"] = "its embedding"
    if _LINEAR.search(source) or origin.deepest_file.endswith("nn/modules/linear.py"):
        slots["linear"] = "linear layer"
    return slots


def _of_architecture(facts: Facts) -> dict[str, str]:
    """Return what PyTorch warned of: the GPU that its build holds no code for, and what it holds."""
    slots: dict[str, str] = {}
    for text in _texts(facts):
        if match := _INCOMPATIBLE.search(text):
            slots |= {"gpu_capability": match[1]}
        elif match := _HOLDS.search(text):
            slots |= {"builder": "PyTorch", "architectures": cut(", ".join(match[1].split()), 120)}
    since = _SINCE.get(slots.get("gpu_capability", ""))
    return slots | ({"since_cuda": f"{slots['gpu_capability']} wants one for CUDA {since} or newer."} if since else {})


def _texts(facts: Facts) -> Iterator[str]:
    return (line.text[:MOST_OF_LINE] for line in facts.lines[:MOST_LINES] if "CUDA capabilit" in line.text[:MOST_OF_LINE])


def steps_out_of_memory(text: str, facts: Facts) -> dict[str, str]:
    """Return the jobs of which Slurm tells in one log that steps met their limit of memory, where they are several."""
    if not _OOM_STEP.search(text):
        return {}
    jobs = dict.fromkeys(match[1] for line in facts.lines if (match := _OOM_STEP.search(line.text[:MOST_OF_LINE])) is not None)
    tasks = [match for line in facts.lines if (match := _OOM_TASK.search(line.text[:MOST_OF_LINE])) is not None]
    if len(jobs) < 2:
        return {"one_task": f"task {tasks[0][2]} on {tasks[0][1]}"} if len(tasks) == 1 and tasks[0][2].isdigit() else {}
    hosts = dict.fromkeys(match[1] for match in tasks)
    on = f" on {', '.join(list(hosts)[:MOST_JOBS])}" if hosts else ""
    listed = ",".join(list(jobs)[:MOST_JOBS])
    return {
        "jobs_out": f"{len(jobs)} jobs{on} met it ({', '.join(list(jobs)[:MOST_JOBS])})",
        "job_record": f"sacct -j {listed} -o JobID%20,State,ExitCode,End,MaxRSS,ReqMem",
    }


def nan_of_backward(text: str, facts: Facts) -> dict[str, str]:
    """Return where the forward pass stands whose backward gave NaN, as anomaly detection prints it, and NumPy's first warning."""
    if not _NAN_BACKWARD.search(text):
        return {}
    slots: dict[str, str] = {}
    forward = next((line for line in reversed(facts.lines) if _FORWARD.search(line.text[:MOST_OF_LINE])), None)
    following = facts.between(forward.number + 1, forward.number + MOST_FRAMES) if forward is not None else []
    for line, source in pairwise(following):
        match = _FRAME.match(line.text)
        if match is not None and not LIBRARY.search(match[1]):
            slots = {"forward_at": f"{match[1]}:{match[2]}", "forward_code": cut(source.text.strip(), 160)}
        elif match is None and not line.text[:1].isspace():
            break
    warned = next((line for line in facts.lines if line.number >= facts.progress.leg and _UNSOUND.search(line.text)), None)
    if warned is not None:
        slots["unsound"] = f"{cut(warned.text.strip(), 200)} (job.log:{warned.number})"
    return slots
