"""Read what allocators, kernels and schedulers print when memory has run out: what was wanted, and who holds how much of what.

PyTorch's message has had five forms: of versions to 1.3 (`cached`), to 2.0 (`reserved in total by PyTorch`), from 2.1 on
(`of which … is free`, with processes), of its asynchronous allocator, and of Apple's. XLA tells bytes, of a TPU its parts; the
kernel tells resident sets, and a control group its usage and limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

UNITS = {"b": 1 / 1024**3, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
"""GiB of a unit, by its first letter."""
SIZE = r"(\d[\d.]{0,16}) ([KMGTb])(?:i?B|ytes)"
REQUEST = re.compile(rf"[Tt]ried to allocate {SIZE}")
TOTAL = re.compile(rf"total capac\w{{1,4}} of {SIZE} of which {SIZE} is free|{SIZE} total capacity;.{{0,120}}?{SIZE} free")
MOST_REQUEST = 2.0**50
"""Bytes from which on a request is no need of a training, but a wrong size."""
GPU = re.compile(r"\b(?:GPU|NPU|XPU) (\d{1,3})\b")
OWN_USE = re.compile(rf"this process has {SIZE} memory in use")
OTHER_PROCESS = re.compile(rf"Process (\d{{1,10}}) has {SIZE} memory in use")
UNUSED = re.compile(rf"{SIZE} is reserved by PyTorch but unallocated")
ALLOCATED = re.compile(rf"{SIZE} (?:is allocated by PyTorch|already allocated)")
RESERVED = re.compile(rf"{SIZE} reserved in total by PyTorch")
ALLOWED = re.compile(rf"{SIZE} allowed;")
_CACHED = re.compile(rf"{SIZE} cached\)")
_POOLS = re.compile(rf"with {SIZE} allocated in private pools")
_ASYNC = re.compile(rf"Currently allocated\s*: {SIZE}.{{0,40}}Requested\s*: {SIZE}.{{0,40}}Device limit\s*: {SIZE}", re.DOTALL)
_APPLE = re.compile(rf"MPS allocated: {SIZE}, other allocations: {SIZE}, max allowed: {SIZE}\)")
_GPU_WORDS = re.compile(
    r"(?:CUDA|HIP|XPU|NPU|MPS backend|MLU|HPU|MUSA) out of memory|(?:torch|cuda)\.OutOfMemoryError|CUDA error: out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory|cudaErrorMemoryAllocation|error=2 : out of memory|cuda runtime error \(2\)"
    r"|(?:CUBLAS|CUDNN|CUSOLVER|HIPBLAS|rocblas)_?(?:STATUS_)?\w{0,20}(?:ALLOC_FAILED|memory_error)"
    r"|CUDA driver error: out of memory"
)
_NCCL = re.compile(
    r"NCCL WARN .{0,60}(?:out of memory|Failed to CUDA (?:malloc|calloc))|ncclUnhandledCudaError.{0,200}out of memory|"
    r"Cuda failure (?:2 )?'out of memory'"
)
_XLA = re.compile(r"RESOURCE_EXHAUSTED|ResourceExhausted(?:Error)?: |ran out of memory trying to allocate")
_XLA_BYTES = re.compile(
    r"(?:[Oo]ut of memory|while trying|trying) (?:while trying )?to allocate (?P<bytes>\d{3,16}) ?bytes"
    r"|request (?:for|of) (?P<size>\d[\d.]{0,12})(?P<unit>[KMGT])i?B"
    r"|trying to allocate (?P<size2>\d[\d.]{0,12})(?P<unit2>[KMGT])i?B"
    r"|Attempting to (?:allocate|reserve) (?P<size3>\d[\d.]{0,12})(?P<unit3>[KMGT])\b"
)
_XLA_FREE = re.compile(r"There are (\d[\d.]{0,12})([KMGTB])i?B? free")
_TPU = re.compile(r"Used (\d[\d.]{0,12})([KMGT]) of (\d[\d.]{0,12})([KMGT]) hbm")
_TENSOR = re.compile(r"OOM when allocating tensor with shape\[([\d,]{1,120})\](?: and type (\w{1,12}))?")
_HOST_TORCH = re.compile(
    r"DefaultCPUAllocator: (?:can't allocate memory|not enough memory)(?:: you tried to allocate (\d{1,18}) bytes)?"
)
_HOST_NUMPY = re.compile(r"Unable to allocate (\d[\d.]{0,16}) ?(bytes|[KMGTP]i?B) for an array")
_HOST_PLAIN = re.compile(r"\[Errno 12\] Cannot allocate memory|std::bad_alloc|(?:^|\s|:)MemoryError(?::|\s*$)|ArrowMemoryError")
_PINNED = re.compile(
    r"cuda(?:HostAlloc|MallocHost|HostRegister)\b.{0,60}(?:fail|out of memory)|pin_memory.{0,120}out of memory"
    r"|out of memory.{0,80}pin_?memory|[Ff]ailed to (?:pin|allocate pinned)|page-locked memory"
)
_KERNEL = re.compile(
    r"(?P<group>Memory cgroup o"
    r"|[Oo])ut of memory(?: \(.{0,240}?\))?: Kill(?:ed)? process (?P<pid>\d{1,10}) \((?P<name>[^)]{1,64})\)"
)
_RSS = re.compile(r"\b(anon|file|shmem)-rss:(\d{1,15})kB")
_GROUP_USAGE = re.compile(r"memory: usage (\d{1,15})kB, limit (\d{1,15})kB")
_SLURM_OVER = re.compile(r"exceeded memory limit \((\d{1,15}) ?> ?(\d{1,15})\)")
_GROUP_KILL = re.compile(
    r"oom[-_]kill event|have been OOM Killed|killed by the cgroup out-of-memory handler|\bOOMKilled\b"
    r"|oom-kill:constraint=CONSTRAINT_MEMCG"
    r"|: task \d{1,6}: Out Of Memory|TERM_MEMLIMIT|memory\.max reached|\bOUT_OF_MEMORY\b|exceeded memory limit"
    r"|container memory limit"
    r"|job killed: p?v?mem |NODE_OUT_OF_MEMORY|node running low on memory|systemd-oomd killed|earlyoom: sending SIGKILL"
)
_LOADER = re.compile(r"DataLoader worker \(pid\W{0,5}(\d{1,10})\) (?:is killed by signal: Killed|exited unexpectedly)")
_SHARED = re.compile(
    r"DataLoader worker \(pid\W{0,5}\d{1,10}\) is killed by signal: Bus error|out of shared memory\. Please try to raise"
    r"|/dev/shm.{0,120}(?:No space left|too small|full|smaller than|not enough|failed to)|No space left on device:? ?['\"]?/dev/shm"
    r"|unable to (?:write to|allocate shared memory).{0,80}/torch_|failed to extend /dev/shm"
    r"|unable to mmap \d+ bytes from file </torch_"
    r"|shared memory \(shm\)|insufficient shared memory|[Ee]rror while creating shared memory segment"
)
_OPEN_FILES = re.compile(r"Too many open files|received 0 items of ancdata")
_SHARED_BYTES = re.compile(r"\b(\d{4,16}) bytes|(?:has|only) (\d[\d.]{0,12}) ?([KMGT])i?B?")
_SURVIVED = re.compile(
    r"skipp(?:ed|ing) (?:this )?batch|, retrying|retrying with|attempting to recover from oom|reducing batch size"
    r"|batch size reduced"
    r"|[Tt]heoretical memory|estimated memory|to avoid (?:CUDA )?(?:out of memory|OOM|fragmentation)|set_oom"
    r"|setting oom_score|oom_score_adj (?:of|to)|might run"
    r"|if you (?:run|get|see|hit)|in case of|prevent(?:s|ing)? (?:CUDA )?(?:out of memory|OOM)|cache flushes since last step"
    r"|catch(?:es|ing)? OOM|this is not a failure"
    r"|OOM (?:guard|handler|observer|protection) (?:enabled|installed|attached)|--oom",
    re.IGNORECASE,
)
_SETTING = re.compile(
    r"retries with |handlers? (?:is )?(?:registered|installed|set)\b"
    r"|(?:may|can|might) (?:cause|run into) (?:(?:an?|CUDA|GPU) ){0,3}(?:OOM|out[- ]of[- ]memory)"
    r"|\b(?:if|when|on|after) (?:an? )?(?:\w{1,30}\.){0,4}(?:CUDA |GPU )?(?:out[- ]of[- ]memory|OutOfMemoryError|OOM)(?: errors?)?"
    r"\W{1,3}(?:we |it |the run |to )?(?:retry|retries|halve|reduce|lower|skip|restart|empty|fall back)",
    re.IGNORECASE,
)
"""What a program says that it would do, or may happen: no shortage, unless figures stand beside it."""
_TIPS = re.compile(
    r"If reserved (?:but unallocated )?memory is .{0,400}|See documentation for .{0,200}"
    r"|Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=.{0,200}|Please use `empty_cache` to release .{0,200}"
)
"""What PyTorch's message recommends, and says of no run."""
_TYPES = {"half": 2, "float16": 2, "bfloat16": 2, "double": 8, "int64": 8, "bool": 1, "int8": 1, "uint8": 1}


class MemoryPlace(StrEnum):
    """Whose memory ran out."""

    GPU = "gpu"
    HOST = "host"
    """Of a node, or of the job's share of it (control group)."""
    SHARED = "shared memory"
    """`/dev/shm`."""


@dataclass(frozen=True)
class MemoryMessage:
    """The account of one message; sizes in bytes, 0 where it does not say them."""

    place: MemoryPlace
    form: str
    """Whose message it is: `torch`, `xla`, `tensorflow`, `nccl`, `kernel`, `cgroup`, `pinned`, `loader`, …"""
    gpu: int | None = None
    requested: float = 0
    total: float = 0
    free: float = 0
    allocated: float = 0
    """By the framework's allocator to tensors."""
    unused: float = 0
    """Reserved by the allocator, and not allocated."""
    process_use: float = 0
    """Of this process, libraries and context included."""
    pools: float = 0
    """Of what is allocated, in private pools of CUDA graphs."""
    allowed: float = 0
    """What the process may take by `set_per_process_memory_fraction`."""
    foreign_processes: tuple[tuple[int, float], ...] = ()
    """Other processes on the GPU: id and bytes."""
    limit: float = 0
    """Of a control group."""
    resident: tuple[tuple[str, float], ...] = ()
    """Parts of the resident set of a killed process: `anon`, `file`, `shmem`."""
    pid: int = 0

    @property
    def foreign(self) -> float:
        """Bytes of the GPU that are neither free nor this process's; 0 where the message does not tell."""
        if self.foreign_processes and self.process_use:
            return sum(size for _, size in self.foreign_processes)
        if self.foreign_processes and len(self.foreign_processes) > 1:
            return sum(size for _, size in self.foreign_processes)
        if not self.total:
            return 0.0
        if self.process_use:
            return max(0.0, self.total - self.free - self.process_use)
        reserved = self.allocated + self.unused
        return max(0.0, self.total - self.free - reserved) if reserved else 0.0

    @property
    def contradiction(self) -> str:
        """Why its figures cannot all be true, as a clause; empty where they can."""
        if self.total and self.allocated + self.unused > 1.02 * self.total:
            return "more is allocated and reserved than the GPU has"
        if self.total and self.free > 1.02 * self.total:
            return "more is free than the GPU has"
        if self.requested >= MOST_REQUEST:
            return "no tensor is that large: a size overflowed, or is wrong in the program"
        return ""


def read_memory_message(text: str) -> MemoryMessage | None:
    """Return the account of a message; None where the text tells of no shortage, or of one that was lived with.

    Args:
        text: A line with those that continue it.
    """
    text = _TIPS.sub("", text[:8_000])
    if _OPEN_FILES.search(text) or _SURVIVED.search(text) or (_SETTING.search(text) and not REQUEST.search(text)):
        return None
    if _SHARED.search(text):
        return MemoryMessage(MemoryPlace.SHARED, "shm", requested=_shared_bytes(text))
    for read in (_of_kernel, _of_host, _of_apple, _of_torch, _of_xla):
        if (message := read(text)) is not None:
            return message
    return None


def _of_kernel(text: str) -> MemoryMessage | None:
    usage = _GROUP_USAGE.search(text)
    limit = int(usage[2]) * 1024.0 if usage else 0.0
    if match := _KERNEL.search(text):
        resident = tuple((name, int(size) * 1024.0) for name, size in _RSS.findall(text))
        form = "cgroup" if match["group"].startswith("Memory") else "kernel"
        return MemoryMessage(MemoryPlace.HOST, form, resident=resident, limit=limit, pid=int(match["pid"]))
    if usage:
        return MemoryMessage(MemoryPlace.HOST, "cgroup", limit=limit, process_use=int(usage[1]) * 1024.0)
    if over := _SLURM_OVER.search(text):
        return MemoryMessage(MemoryPlace.HOST, "cgroup", process_use=int(over[1]) * 1024.0, limit=int(over[2]) * 1024.0)
    if _GROUP_KILL.search(text):
        return MemoryMessage(MemoryPlace.HOST, "cgroup")
    if match := _LOADER.search(text):
        return MemoryMessage(MemoryPlace.HOST, "loader", pid=int(match[1]))
    return None


def _of_host(text: str) -> MemoryMessage | None:
    if _PINNED.search(text):
        return MemoryMessage(MemoryPlace.HOST, "pinned", requested=_shared_bytes(text))
    if match := _HOST_TORCH.search(text):
        return MemoryMessage(MemoryPlace.HOST, "torch on the host", requested=float(match[1] or 0))
    if match := _HOST_NUMPY.search(text):
        return MemoryMessage(MemoryPlace.HOST, "NumPy", requested=size_bytes(match[1], match[2][0].replace("b", "B")))
    if _HOST_PLAIN.search(text) and not _GPU_WORDS.search(text):
        return MemoryMessage(MemoryPlace.HOST, "process")
    return None


def _of_apple(text: str) -> MemoryMessage | None:
    match = _APPLE.search(text)
    if match is None:
        return None
    request = REQUEST.search(text)
    return MemoryMessage(
        MemoryPlace.GPU, "torch on Apple", requested=size_bytes(*request.groups()) if request else 0.0,
        allocated=size_bytes(match[1], match[2]), total=size_bytes(match[5], match[6]),
    )  # fmt: skip


def _of_torch(text: str) -> MemoryMessage | None:
    if match := _ASYNC.search(text):
        allocated, requested, total = (size_bytes(match[place], match[place + 1]) for place in (1, 3, 5))
        return MemoryMessage(MemoryPlace.GPU, "torch async", requested=requested, allocated=allocated, total=total)
    nccl = _NCCL.search(text)
    if not (nccl or _GPU_WORDS.search(text) or (REQUEST.search(text) and TOTAL.search(text))):
        return None
    if nccl and not REQUEST.search(text):
        return MemoryMessage(MemoryPlace.GPU, "nccl")
    account, gpu = TOTAL.search(text), GPU.search(text)
    sizes = [group for group in account.groups() if group is not None] if account else []
    allocated, unused, process_use = _size(ALLOCATED, text), _size(UNUSED, text), _size(OWN_USE, text)
    reserved = _size(RESERVED, text)
    unused = unused or _size(_CACHED, text)  # up to 1.3: what the cache holds beyond what is allocated
    total_bytes = size_bytes(*sizes[:2]) if sizes else 0.0
    foreign_processes = tuple((int(pid), size_bytes(number, unit)) for pid, number, unit in OTHER_PROCESS.findall(text))
    if (
        not process_use
        and len(foreign_processes) == 1
        and abs(foreign_processes[0][1] - allocated - unused) < max(2 * 1024**3, 0.1 * foreign_processes[0][1])
    ):
        process_use, foreign_processes = foreign_processes[0][1], ()  # in a container no process is called "this"
    return MemoryMessage(
        MemoryPlace.GPU, "torch", gpu=int(gpu[1]) if gpu else None, requested=_size(REQUEST, text), total=total_bytes,
        free=size_bytes(*sizes[2:4]) if sizes else 0.0, allocated=allocated, unused=unused or max(0.0, reserved - allocated),
        # below zero, printed without its sign (WSL)
        process_use=process_use if process_use <= 2 * total_bytes or not total_bytes else 0.0,
        pools=_size(_POOLS, text), allowed=_size(ALLOWED, text), foreign_processes=foreign_processes,
    )  # fmt: skip


def _of_xla(text: str) -> MemoryMessage | None:
    tensor = _TENSOR.search(text)
    if tensor is not None:
        count = 1.0
        for number in tensor[1].split(","):
            count *= int(number or 1)
        return MemoryMessage(MemoryPlace.GPU, "tensorflow", requested=count * _TYPES.get(tensor[2] or "", 4))
    if not _XLA.search(text) or "quota" in text.lower():
        return None
    if match := _TPU.search(text):
        used, total = size_bytes(match[1], match[2]), size_bytes(match[3], match[4])
        return MemoryMessage(MemoryPlace.GPU, "xla", requested=used, total=total)
    request, free = _XLA_BYTES.search(text), _XLA_FREE.search(text)
    if request is None and "emory" not in text and "OOM" not in text:
        return None
    requested = 0.0
    if request is not None:
        number, unit = next((request[f"size{n}"], request[f"unit{n}"]) for n in ("", "2", "3") if n == "3" or request[f"size{n}"])
        requested = float(request["bytes"]) if request["bytes"] else size_bytes(number, unit)
    return MemoryMessage(MemoryPlace.GPU, "xla", requested=requested, free=size_bytes(free[1], free[2]) if free else 0.0)


def _shared_bytes(text: str) -> float:
    match = _SHARED_BYTES.search(text)
    if match is None:
        return 0.0
    return float(match[1]) if match[1] else size_bytes(match[2], match[3])


def _size(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.search(text)
    return size_bytes(match[1], match[2]) if match else 0.0


def size_bytes(number: str, unit: str) -> float:
    """Return a size in bytes of its number and the first letter of its unit; 0 of what is no number."""
    try:
        return float(number) * {**UNITS, "B": UNITS["b"], "P": 1024.0**2}.get(unit[:1], 0.0) * 1024**3
    except ValueError:
        return 0.0
