"""How a real training job would say that it dies: PyTorch's prefixed tracebacks and watchdog, NCCL's warnings.

Nightshift must be tried on the words that it will meet, so the demo's trainer uses them. Sources: PyTorch 2.4
ProcessGroupNCCL.cpp and torch/distributed, NCCL 2.20 misc/socket.cc.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
import time
import traceback
from types import TracebackType

from assistant.training.ring import CollectiveTimeout, PeerGone

BACKEND = "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"


def _glog(rank: int) -> str:
    """Return the head of a line that PyTorch's C++ logger prints for an error."""
    at = time.time()
    clock = time.strftime("%m%d %H:%M:%S", time.gmtime(at))
    return f"[rank{rank}]:[E{clock}.{int(at % 1 * 1e9):09d} ProcessGroupNCCL.cpp"


def peer_gone_lines(gone: PeerGone, *, node: str, local_rank: int) -> tuple[str, str]:
    """Return NCCL's warning and the text of the exception that PyTorch raises after it."""
    pid, thread = os.getpid(), threading.get_native_id() + 61
    last = f"socketProgress: Connection closed by remote peer {gone.node}<{gone.port}>"
    warning = f"\n{node}:{pid}:{thread} [{local_rank}] misc/socket.cc:49 NCCL WARN {last}"
    raised = (
        f"NCCL error in: {BACKEND}:2006, remote process exited or there was a network error, NCCL version 2.20.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        f"Last error:\n{last}"
    )
    return warning, raised


def timeout_lines(late: CollectiveTimeout, rank: int, limit_s: float) -> list[str]:
    """Return what PyTorch's watchdog prints before it takes the process down."""
    work = (
        f"WorkNCCL(SeqNum={late.number}, OpType=ALLREDUCE, NumelIn={late.size}, NumelOut={late.size},"
        f" Timeout(ms)={limit_s * 1000:.0f}) ran for {late.waited_s * 1000:.0f} milliseconds before timing out."
    )
    caught, group = f"[Rank {rank}] Watchdog caught collective operation timeout: {work}", f"[PG 0 (default_pg) Rank {rank}]"
    return [
        f"{_glog(rank)}:607] {caught}",
        f"{_glog(rank)}:1664] {group} Exception (either an error or timeout) detected by watchdog at work: {late.number},"
        f" last enqueued NCCL work: {late.number}, last completed NCCL work: {late.number - 1}.",
        f"{_glog(rank)}:1709] {group} Timeout at NCCL work: {late.number}, last enqueued NCCL work: {late.number},"
        f" last completed NCCL work: {late.number - 1}.",
        f"{_glog(rank)}:621] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of"
        " CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.",
        f"{_glog(rank)}:627] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.",
        f"{_glog(rank)}:1515] {group} Process group watchdog thread terminated with exception: {caught}",
        f"Exception raised from checkTimeout at {BACKEND}:609 (most recent call first):",
        "",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        f"  what():  {group} Process group watchdog thread terminated with exception: {caught}",
    ]


def named_exception(name: str, message: str) -> Exception:
    """Return an exception that prints under a dotted name, such as `torch.OutOfMemoryError`."""
    builtin = getattr(builtins, name, None)
    if isinstance(builtin, type) and issubclass(builtin, Exception):
        return builtin(message)
    module, _, last = name.rpartition(".")
    kind = type(last, (RuntimeError,), {"__module__": module or "builtins"})
    made: Exception = kind(message)
    return made


def prefix_tracebacks(rank: int) -> None:
    """Print the traceback of a crash as PyTorch does in a distributed job: each line with its rank, in one write."""

    def print_it(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace)).rstrip("\n")
        sys.stderr.write("".join(f"[rank{rank}]: {line}\n" for line in text.split("\n")))
        sys.stderr.flush()

    sys.excepthook = print_it
