"""Say what filled a device's memory or who killed a process, and what to lower.

It is told from the account in the message, the frames, and the settings in the log. PyTorch's account tells four things apart that
want four remedies: another process holds the memory, another library of this process does, it is reserved but in pieces too small,
or the job itself is too large.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from assistant.diagnose.advice.amounts import lowered, not_returned, oom_record, smaller_command, taken_at_start
from assistant.diagnose.advice.sentences import with_capital
from assistant.diagnose.advice.stopped import first_exit, record_command, worker_exit
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import BATCH, FOLDER, LENGTH, WORKERS, Setting, last_save, setting
from assistant.diagnose.readers.memory_messages import (
    ALLOCATED,
    ALLOWED,
    GPU,
    OTHER_PROCESS,
    OWN_USE,
    REQUEST,
    RESERVED,
    TOTAL,
    UNITS,
    UNUSED,
)
from assistant.diagnose.readers.origin import LIBRARY, ProgramKind, ProgramOfLog, message_of, origin_of, raised_at
from assistant.diagnose.readers.tracebacks import SourceFrame
from assistant.records import Citation, Diagnosis

_BYTES = {"float": 4, "float32": 4, "double": 8, "half": 2, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8}
_LOADING_MODEL = re.compile(
    r"\b(?:[Ll]oad(?:ing)?) (?:the |a )?(?:\w+ )?(?:model|weights|checkpoint|pipeline)\b.{0,40}out of memory"
)
_LOOKS_ON = re.compile(
    r"(?:^|_)(?:valid(?:at\w*)?|eval(?:uat\w*)?|test|sampl\w*|visuali\w*|infer\w*|preview\w*|render_val\w*|log_(?:images?|samples?))(?:_|$)"
)
"""Functions that a training calls to look at what it has learnt so far."""
_WHOLE_PROGRAM = re.compile(r"^(?:\w{1,40} = )?(?:[\w.]{1,60}\.)?(?:pre_?train|train|fit|run|launch|main|evaluate)\w{0,20}\(")
"""A call of all that a program does: its line makes nothing of its own."""
_DECODES = re.compile(r"(?:^|_)decode")
_TENSOR = re.compile(r"OOM when allocating tensor with shape\[([\d,]{1,120})\](?: and type (\w{1,12}))?")
SMALL_GPU_GIB = 16.5
"""Memory of a GPU up to which a larger one is easily had."""
SMALL_GIB = 0.05
"""A tensor below which it is not the tensor that is too large."""
_PLAIN = re.compile(r"(?:allocat\w{1,4}|requested) (\d{6,16}) ?(?:bytes|B\b)", re.IGNORECASE)
_DEVICE = re.compile(
    r"device memory|CUDA|cuda|HIP|NPU|GPU|hbm|RESOURCE_EXHAUSTED|torch\.OutOfMemoryError|ResourceExhausted", re.IGNORECASE
)
_LOADS = re.compile(
    r"^(?:from_pretrained|load_(?:model|weights|state_dict|checkpoint).{0,20}|_load_.{0,40}|to|cuda|_apply|create_weights|"
    r"process_weights_.{0,30})$"
)
_BEFORE_WORK = frozenset({"barrier", "init_process_group", "_lazy_init", "set_device", "manual_seed_all", "current_stream"})
"""Calls that want next to nothing of a GPU, by which a process takes it."""
_KEEPS = re.compile(r"\b(?:output_hidden_states|output_attentions|return_attention\w*|retain_graph|keep_graph)=True")
_SPREAD = re.compile(r"[/\\]accelerate[/\\]hooks\.py$")
_GENERATES = re.compile(r"^(?:generate|_?sample|_greedy_search|beam_search)$")
_EVALUATES = re.compile(r"^(?:evaluat\w{0,12}|evaluation_loop|prediction_step|validat\w{0,12}|_?run_evaluat\w{0,10})$")
_TRAINER = re.compile(r"[/\\](?:transformers|trl)[/\\](?:\w+[/\\])?\w*trainer\.py$")
_RECOMPUTES = re.compile(r"[/\\]checkpoint(?:ing)?\.py$")
_ULTRALYTICS = re.compile(r"[/\\]ultralytics[/\\]")
_MODEL_CALLS = frozenset(
    {"forward", "backward", "training_step", "compute_loss", "generate", "step", "apply", "loss_fn", "train", "fit"}
    | {"train_step", "train_epoch", "train_one_epoch"}
)
"""Functions of models and their training."""
_TORCH = re.compile(r"[/\\]torch[/\\]nn[/\\]modules[/\\]")
_ATTENTION = re.compile(
    r"\bq\w{0,8} ?@ ?k\w{0,8}\.(?:transpose|mT|T\b|permute)|(?:matmul|bmm|einsum)\([^()]{0,40}\bq\w{0,8}, ?k\w{0,8}\b"
)
"""A line of source that makes the whole matrix of attention of queries and keys."""
LEAST_FITTED = 20
"""Logged steps of training from which on it is no question of the settings alone that memory ran out."""
OF_VOLUMES = 5
"""Sizes of a tensor from which on it holds films or volumes, beside a batch and channels."""
MOST_BATCH = 4096
"""Samples up to which the first size of a tensor may be those of a batch."""
LOADING = 6
"""Innermost frames that tell whether a model was being loaded."""
NEARLY_ALL = 0.8
"""Share of a GPU from which on the process itself is what fills it."""
LITTLE_SHARE, GROWN_STEPS = 0.01, 100
"""Share of a GPU below which a tensor is no large one, and steps from which on what is held has grown while it ran."""
LEAST_GIB, LEAST_SHARE = 1.0, 0.03
"""Memory of a GPU that is worth a word: in GiB, and as a share of the whole."""


_LACKS = re.compile(r"(?:CUDA|HIP|NPU) ?(?:[Ee]rror)?\W{1,3}out of memory|cudaErrorMemoryAllocation|cudaMalloc failed")


def memory_advice(cited: Citation, facts: Facts, program: ProgramOfLog) -> str:
    """Return what to change where the memory of a device did not suffice; empty where the cited line does not tell of that."""
    text = " ".join(message_of(cited, facts))
    if account := taken_at_start(text, facts) or (_LACKS.search(text) and not_returned(cited, facts)):
        return account
    if parts := _account(text):
        sentence, remedy, enough = parts
        if not enough and not remedy and (remains := _left_before(cited, text, facts)):
            return f"{sentence} {remains}"
        pieces = _in_pieces(cited, facts) if "in one piece" in sentence else ""
        relief = "" if enough else pieces or _relief(cited, facts, program)
        return " ".join(words for words in (remedy, relief, sentence) if words)
    if tensor := _TENSOR.search(text):
        return _tensor(tensor[1], tensor[2] or "float", _relief(cited, facts, program))
    if _DEVICE.search(text) and (plain := _PLAIN.search(text)):
        return f"{int(plain[1]) / 1024**3:.2f} GiB of a device were asked for in one piece. {_relief(cited, facts, program)}"
    if _LACKS.search(text):
        return (
            "The message does not say how much was free: nvidia-smi on the node shows whether another process, or another model of "
            f"this one, holds the GPU; it has to go first. {_relief(cited, facts, program)}"
        )
    return ""


def _tensor(shape: str, kind: str, relief: str) -> str:
    size = math.prod(int(number) for number in shape.split(",") if number) * _BYTES.get(kind, 4) / 1024**3
    if size < SMALL_GIB:
        small = f"A tensor of only {size * 1024:.1f} MiB (shape [{shape}]) found no place: memory was full before it"
        grown = "look at what grows from step to step (graphs, lists of results, other processes)"
        return f"{small}, so {grown}."
    batch = shape.partition(",")[0]
    first = (
        f" Its first size, {batch}, mostly is the batch: try {int(batch) // 2}."
        if 1 < int(batch or 1) <= MOST_BATCH and "batch." in relief
        else ""
    )
    sizes = [int(number) for number in shape.split(",")[1:] if number.strip()]
    longest = f" Cut the {max(sizes, default=0)} of its other sizes, too (shorter clips, smaller parts)."
    axes = longest if len(sizes) >= OF_VOLUMES - 1 and first else ""
    return f"One tensor of shape [{shape}] ({kind}) wants {size:.2f} GiB. {relief}{first}{axes}"


def _in_pieces(cited: Citation, facts: Facts) -> str:
    """Return the job's own line that makes one tensor larger than the GPU; empty where a library makes it."""
    origin = origin_of(cited, facts)
    if origin is None or not origin.own or origin.library or not origin.code:
        return ""
    return f"Do `{origin.code}` at {origin.place} in smaller pieces (fewer rows at a time), or on the CPU."


def _left_before(cited: Citation, text: str, facts: Facts) -> str:
    """Return a word about a model that is loaded into a process whose earlier work still fills the GPU; empty where none shows."""
    raised, total = raised_at(cited, facts), TOTAL.search(text)
    if raised is None or total is None or not any(_LOADS.match(frame.function) for frame in raised[1].frames[-LOADING:]):
        return ""
    sizes = [group for group in total.groups() if group is not None]
    own, whole = _first(OWN_USE, text) or _first(ALLOCATED, text), _gib(*sizes[:2])
    worked = facts.progress.before(cited.line) > facts.progress.before(facts.progress.leg - 1)
    earlier = any(e.first < raised[0].first and any("OutOfMemory" in r.name for r in e.raised) for e in facts.episodes)
    if own < whole * NEARLY_ALL or own > 2 * whole or not (worked or earlier):
        return ""
    return (
        f"This process itself holds {own:.1f} GiB of it already, from the work that it did before: free the earlier model "
        f"before the "
        "next is loaded (del, gc.collect(), torch.cuda.empty_cache()), or give each run a process of its own."
    )


class _Account(NamedTuple):
    sentence: str
    remedy: str
    enough: bool
    """Whether the job need not become smaller."""


def _account(text: str) -> _Account | None:
    """Return what PyTorch's account says and the remedy that follows from it; None where the message holds none."""
    request, total = REQUEST.search(text), TOTAL.search(text)
    if request is None or total is None:
        return None
    sizes = [group for group in total.groups() if group is not None]
    whole, free = _gib(*sizes[:2]), _gib(*sizes[2:4])
    gpu = GPU.search(text)
    sentence = (
        f"{f'GPU {gpu[1]}' if gpu else 'The GPU'} has {whole:.1f} GiB, of which {free:.2f} GiB were free when "
        f"{request[1]} {request[2]}iB more were wanted."
    )
    if _gib(*request.groups()) > whole:
        return _Account(f"{sentence} That is more than the whole GPU, in one piece: nothing that is freed helps.", "", enough=False)
    if (allowed := _first(ALLOWED, text)) and allowed < whole * NEARLY_ALL:
        return _Account(
            sentence,
            f"This process may take only {allowed:.1f} GiB of the GPU, for it has called "
            "torch.cuda.set_per_process_memory_fraction: raise that share where nothing else needs the GPU, or "
            "free what it holds first (del, gc.collect(), torch.cuda.empty_cache()).",
            enough=True,
        )
    foreign = _foreign(text, whole, free)
    if foreign:
        return _Account(sentence, foreign, enough=True)
    reserved = _first(RESERVED, text)
    if reserved and whole - free - reserved > whole / 2:
        return _Account(sentence, _outside(text, whole, free), enough=True)
    unused = _unused(text, whole, free, _gib(*request.groups()))
    return _Account(sentence, unused or _outside(text, whole, free), enough=False)


def _foreign(text: str, whole: float, free: float) -> str:
    """Return the remedy where others than this process's PyTorch hold much of the GPU."""
    own, processes = _first(OWN_USE, text), OTHER_PROCESS.findall(text)
    own = 0.0 if own > 2 * whole else own  # below zero, printed without its sign (WSL)
    least = max(LEAST_GIB, whole / 10)
    elsewhere = sum(_gib(*process[1:]) for process in processes) or (whole - free - own if own else 0.0)
    if not own and len(processes) == 1:  # where no process is called "this", the only one is
        elsewhere -= _first(ALLOCATED, text) + _first(UNUSED, text)
    if elsewhere > least:
        owner = f"processes {', '.join(process[0] for process in processes[:4])}" if processes else "other processes"
        return f"About {elsewhere:.1f} GiB are held by {owner}: end them, or see that each process takes a GPU of its own."
    torch = (_first(ALLOCATED, text) + _first(UNUSED, text)) if own else 0.0
    if own and own - torch > max(2 * LEAST_GIB, whole / 10):
        return (
            f"This process holds {own:.1f} GiB, but only {torch:.1f} GiB of them are PyTorch's: another library in it "
            "has the rest. "
            "Keep TensorFlow off the GPU (tf.config.set_visible_devices([], 'GPU')), or let JAX take no more than it needs "
            "(XLA_PYTHON_CLIENT_PREALLOCATE=false)."
        )
    return ""


def _outside(text: str, whole: float, free: float) -> str:
    """Return a word about memory that an older message does not account for."""
    reserved = _first(RESERVED, text)
    if not reserved or whole - free - reserved <= max(2 * LEAST_GIB, whole / 10):
        return ""
    outside = f"About {whole - free - reserved:.1f} GiB are not this process's PyTorch's"
    return f"{outside}: nvidia-smi shows who holds them; end that, or take another GPU."


def _unused(text: str, whole: float, free: float, request: float) -> str:
    """Return the remedy where reserved memory that is not in use would have sufficed."""
    unused = _first(UNUSED, text) or max(_first(RESERVED, text) - _first(ALLOCATED, text), 0.0) * bool(_first(RESERVED, text))
    if unused < max(LEAST_GIB, whole * LEAST_SHARE) or unused + free < request:
        return ""
    pieces = f"{unused:.2f} GiB are reserved but in pieces too small"
    if (
        "reserved in total by PyTorch" in text and "expandable" not in text
    ):  # the form before PyTorch 2.1, which knows no such segments
        if "max_split_size_mb" in text:
            return f"{pieces}: set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 first."
        return f"{pieces}: call torch.cuda.empty_cache() before this part begins, which gives them back."
    return f"{pieces}: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True first."


def _little(text: str) -> bool:
    """Tell whether what was wanted is so little that what was held before is to blame."""
    request, total = REQUEST.search(text), TOTAL.search(text)
    if request is None or total is None:
        return False
    sizes = [group for group in total.groups() if group is not None]
    return _gib(*request.groups()) < LITTLE_SHARE * _gib(*sizes[:2])


def _relief(cited: Citation, facts: Facts, program: ProgramOfLog) -> str:
    """Return what to lower, by what the program did when the memory ran out and by the settings that the log prints."""
    raised = raised_at(cited, facts)
    frames = raised[1].frames if raised is not None else []
    functions = [frame.function for frame in frames]
    if any(_LOADS.match(name) for name in functions[-LOADING:]) or (not frames and _LOADING_MODEL.search(cited.text)):
        return (
            "It was loading the model, so no batch is to blame: shard it over more GPUs, load it in 16 bit or quantised, and see "
            "that no other model or process is on the GPU."
        )
    if _BEFORE_WORK & set(functions[-LOADING:]):
        return (
            "It came before any batch was there, so the GPU was full already: end what else runs on it (nvidia-smi), and see that "
            "each process takes a GPU of its own (torch.cuda.set_device(local_rank) before the first call)."
        )
    if program.kind is ProgramKind.PREPROCESSING and "forward" not in functions:
        return (
            "It prepares data: give the GPU less of it at once (in pieces, what is sparse kept sparse), or do that step on the CPU."
        )
    if looking := _looks_on(frames, functions, program):
        return looking
    origin = origin_of(cited, facts)
    code = f", `{origin.code}`" if origin is not None and origin.own and origin.code else ""
    if any(_ULTRALYTICS.search(frame.file) for frame in frames) and origin is not None and origin.own:
        return f"Give a smaller batch= or imgsz= at {origin.place}{code}."
    batch, length = setting(facts, BATCH, cited.line), setting(facts, LENGTH, cited.line)
    if (length is not None and "model" in length.name) or (program.kind is ProgramKind.SERVING and program.text):
        window = length or "the longest context"
        return f"Lower {window} or gpu_memory_utilization, or serve it with more GPUs (tensor_parallel_size)."
    if any(_TRAINER.search(frame.file) for frame in frames) and program.kind is ProgramKind.TRAINING:
        return _of_transformers(batch, length)
    of_one_line = batch is None and origin is not None and origin.own and origin.code and not _of_a_model(frames, functions)
    of_one_line = of_one_line and _WHOLE_PROGRAM.search(origin.code if origin is not None else "") is None
    if frames and origin is not None and of_one_line and _little(" ".join(message_of(cited, facts))):
        grown = f"It had made {program.steps} steps until then, so what" if program.steps >= GROWN_STEPS else "What"
        return (
            f"{grown} it holds at {origin.place} has filled the GPU, not the little that was wanted: look for what is kept from "
            "one step to the next (results with their graph: .item() or .detach(); a model or list that grows: give it a limit)."
        )
    if frames and origin is not None and of_one_line:
        return (
            f"What `{origin.code}` at {origin.place} makes is what is too large: make it in pieces (fewer rows at a time), keep "
            "less beside it on the GPU, or do it on the CPU."
        )
    parts = [_batch(batch)]
    if origin is not None and (keeps := _KEEPS.search(origin.code)):
        parts.append(f"do without {keeps[0]} at {origin.place}, which keeps the results of all layers")
    if any(_SPREAD.search(frame.file) for frame in frames):
        parts.append(
            "leave room beside the weights that accelerate put there (max_memory of from_pretrained), or load them in 8 bit"
        )
    if length is not None:
        parts.append(f"shorten {length}")
    elif program.text:
        parts.append("shorten the sequences")
    if program.text and any(_GENERATES.match(name) for name in functions):
        parts.append("generate fewer or shorter answers at a time")
    elif not _of_torch(cited, frames):
        pass
    elif program.kind is ProgramKind.EVALUATION or any(_EVALUATES.match(name) for name in functions):
        parts.append("keep no gradients (torch.no_grad) and no outputs of all batches on the GPU")
    elif any(_RECOMPUTES.search(frame.file) for frame in frames):
        parts.append(
            "take a larger GPU or more of them: activations are recomputed already (torch.utils.checkpoint in the traceback)"
        )
    elif origin is not None and origin.own and not origin.library and _ATTENTION.search(origin.code):
        parts.append(
            f"compute the attention at {origin.place} by torch.nn.functional.scaled_dot_product_attention, which does not hold "
            "its whole matrix as this line does"
        )
    elif program.trains and any(_TORCH.search(frame.file) for frame in frames):
        parts.append("recompute activations (torch.utils.checkpoint)")
    if (total := TOTAL.search(" ".join(message_of(cited, facts)))) is not None:
        whole = _gib(*[group for group in total.groups() if group is not None][:2])
        parts += [f"take a GPU with more than {whole:.1f} GiB"] if 0 < whole < SMALL_GPU_GIB else []
    words = "; then ".join((parts[0], ", or ".join(parts[1:]))) if len(parts) > 1 else parts[0]
    return f"{_grown(cited, facts)}{with_capital(words)}."


def _looks_on(frames: Sequence[SourceFrame], functions: Sequence[str], program: ProgramOfLog) -> str:
    """Return what to lower where a training that had fitted ran out of memory while it looked at what it has learnt; else empty."""
    own = [frame for frame in frames if frame.line and not LIBRARY.search(frame.file)]
    frame = next((frame for frame in own if _LOOKS_ON.search(frame.function)), None)
    if frame is None or not program.trains or program.steps < LEAST_FITTED or "backward" in functions:
        return ""
    decodes = any(_DECODES.search(name) for name in functions)
    tiles = " (of an autoencoder of diffusers: enable_tiling(), enable_slicing())" if decodes else ""
    return (
        f"It came in {frame.function}(), called on the way at {frame.file}:{frame.line}, and not in the training, whose steps had "
        f"fitted: {'decode' if decodes else 'give it'} fewer samples at a time there{tiles}, under torch.no_grad(), and call "
        "torch.cuda.empty_cache() before it."
    )


def _of_torch(cited: Citation, frames: Sequence[SourceFrame]) -> bool:
    """Tell whether it is PyTorch whose words are given: in the message, or by a frame; without frames nothing speaks against it."""
    return "orch" in cited.text or not frames or any("torch" in frame.file for frame in frames)


def _of_a_model(frames: Sequence[SourceFrame], functions: Sequence[str]) -> bool:
    """Tell whether a traceback passes through a model or its gradients, whose memory grows with the batch."""
    return any(_TORCH.search(frame.file) for frame in frames) or not _MODEL_CALLS.isdisjoint(functions)


def _grown(cited: Citation, facts: Facts) -> str:
    """Return that the memory sufficed for many steps of training before; empty where the log does not show that."""
    if facts.metric_file != "job.log":
        return ""
    steps = [point.step for point in facts.points if facts.progress.leg <= point.line < cited.line]
    if len(steps) < LEAST_FITTED:
        return ""
    return (
        f"It had fitted up to step {steps[-1]}, so something grew or one input was larger: look for tensors kept over steps and at "
        "the largest input. "
    )


def _of_transformers(batch: Setting | None, length: Setting | None) -> str:
    """Return what to lower in the arguments of the Trainer of transformers."""
    tiny = batch is not None and batch.value == "1"
    first = (
        f"{batch} is as low as it goes"
        if tiny
        else f"Lower {lowered(batch) if batch is not None else 'per_device_train_batch_size'}"
    )
    more = "" if tiny else ", raise gradient_accumulation_steps by as much"
    shorter = f", or shorten {length}" if length is not None else ""
    return f"{first}{more}; then set gradient_checkpointing=True{shorter}."


def _batch(batch: Setting | None) -> str:
    """Return what to do about the batch, which costs a result least."""
    if batch is None:
        return "lower the batch"
    if batch.value == "1":
        return f"{batch} is as low as it goes"
    return f"lower {lowered(batch)}"


def _first(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.search(text)
    return _gib(match[1], match[2]) if match else 0.0


def _gib(number: str, unit: str) -> float:
    try:
        return float(number) * UNITS[unit]
    except ValueError:
        return 0.0


KILLS = frozenset({"killed", "dataloader_killed"})
_SHELL = re.compile(r"(?<!\d)(\d{2,8})(?: Done .{0,80}\|)?\s+Killed\b")
_WORKER = re.compile(r"DataLoader worker \(pid\W{0,5}(\d{2,8})")
_LAUNCHED = re.compile(r"exitcode: -9\).{0,60}\(pid: (\d{2,8})\)")
_SRUN_KILLED = re.compile(r"srun: error: \S{1,80}: tasks? [\d,-]{1,80}: Killed")
_SRUN_SIGNAL = re.compile(
    r"srun: error: (?P<node>[\w.-]{1,80}): tasks? (?P<tasks>[\d,-]{1,80}): "
    r"(?P<how>Bus error|Segmentation fault|Aborted|Illegal instruction|Floating point exception)"
)
_STEP_ENDING = re.compile(r"srun: (?:Job step aborted|Terminating (?:StepId|job step))")
_OF_SIGNALS = {
    "Bus error": "a bus error is a mapped file that was cut off, a full /dev/shm or /tmp on that node, or its memory (dmesg -T)",
    "Segmentation fault": "a segmentation fault is native code that touched memory not its own (a core file, its stack)",
    "Aborted": "an abort is a check of its own that failed, and what it printed last says which",
    "Illegal instruction": "an illegal instruction is a program that was built for another processor than that node has",
    "Floating point exception": "a floating point exception is mostly a whole number that is divided by 0",
}
_OF_MEMORY = re.compile(r"signal: Killed|exited unexpectedly")


def kill_account(diagnosis: Diagnosis, facts: Facts, program: ProgramOfLog) -> tuple[str, bool]:
    """Return which record decides, or what failed by itself, and whether it did; empty for other reasons."""
    texts = [cited.text for cited in diagnosis.root_cause[:3]]
    if diagnosis.reason not in KILLS or facts.case.job is not None or not texts:
        return "", False
    if diagnosis.reason == "dataloader_killed" and not any(_OF_MEMORY.search(text) for text in texts):
        return "", False
    if diagnosis.reason == "killed" and (first := _ended_first(diagnosis, facts)):
        return first, True
    if account := worker_exit(texts):
        return account, True
    if record := oom_record(facts):
        return f"The kernel ended it for want of host memory ({record}): {_levers(diagnosis, facts, program)}.", True
    match = next((match for text in texts for pattern in (_WORKER, _SHELL, _LAUNCHED) if (match := pattern.search(text))), None)
    process = f" of process {match[1]}" if match else ""
    batch_job = f", or {record}" if (record := record_command(facts)) else ""
    words = (
        "SIGKILL without a word is most often the kernel's, when the host has no memory left: dmesg -T of the node "
        f"(an oom-kill record{process}){batch_job} says it."
    )
    early = "It came before any step was made, so it comes again unless that changes. " * (program.trains and not program.steps)
    lower = _levers(diagnosis, facts, program)
    return f"{words} {early}If it was memory, {lower}; if not, a person or the scheduler ended it.{_folder(facts)}", False


def _ended_first(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return which task ended by a signal of its own before Slurm killed the others of its step; empty where none did."""
    cited = diagnosis.root_cause[0]
    if cited.file != "job.log" or _SRUN_KILLED.search(cited.text) is None:
        return ""
    ending = False
    for line in facts.lines:
        if line.number >= cited.line:
            break
        if line.number < facts.progress.leg:
            continue
        if match := _SRUN_SIGNAL.search(line.text[:400]):
            why = _OF_SIGNALS[match["how"]]
            return (
                f"Task {match['tasks']} on {match['node']} ended first, by {match['how']} (job.log:{line.number}), and the tasks "
                f"that were killed are what Slurm ended after it. Look at its output; {why}."
            )
        ending = ending or _STEP_ENDING.search(line.text[:400]) is not None
    return first_exit(facts) if ending else ""


def _levers(diagnosis: Diagnosis, facts: Facts, program: ProgramOfLog) -> str:
    before = diagnosis.root_cause[0].line
    workers, batch = setting(facts, WORKERS, before), setting(facts, BATCH, before)
    loads = diagnosis.reason == "dataloader_killed" or program.trains or program.kind is ProgramKind.EVALUATION
    settings = [lowered(value) for value in (workers, batch if loads else None) if value is not None and value.value != "1"]
    if settings:
        return f"lower {' or '.join(settings)}, or ask for more host memory"
    smaller = smaller_command(diagnosis.root_cause, facts) or "let it hold less"
    less = "lower the loader's num_workers" if diagnosis.reason == "dataloader_killed" else smaller
    return f"{less}, or ask for more host memory"


def _folder(facts: Facts) -> str:
    """Return where the program was told to write, where the log shows no save."""
    folder = setting(facts, FOLDER, facts.lines[-1].number) if facts.lines and last_save(facts) is None else None
    return f" A save would lie in {folder.value} ({folder.name}, job.log:{folder.line})." if folder is not None else ""
