"""Faults that really happen: armed by a file in the node's or the job's folder, looked for at every step.

A file `<folder>/<name>.json` is one fault, with the keys of `FaultFile`. A fault of a node comes back whenever the node trains
again; one that happens once is renamed to `<name>.fired` first. `assistant.demo.job.armed` makes these files.
"""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from assistant.training.model import OUTAGE, Loader, newest_complete, write_tracker
from assistant.training.ring import CollectiveTimeout, PeerGone, Ring

FOR_EVER_S = 86_400.0


@dataclass(frozen=True)
class FaultFile:
    """One armed fault as the trainer knows it; keys that it does not know are left alone."""

    name: str
    how: str
    """raise, stall_link, hang, kill_worker, kill, node_down, storage_down, broken_evaluation, bad_samples, eat_memory or
    fill_disk."""
    on: str = "step"
    """Where it strikes: step, save or evaluation."""
    at_step: int = 0
    rank: int | None = None
    """Rank of the job; None for all."""
    local_rank: int | None = None
    """For a fault of a node: the rank on it."""
    once: bool = True
    exception: str = "RuntimeError"
    message: str = ""
    prints: Sequence[str] = ()
    kernel: Sequence[str] = ()
    damages: str = ""
    """`newest` flips bytes of the newest complete checkpoint; `tracker` names the unfinished one as the newest."""
    outage_s: float = 0.0
    samples: Sequence[int] = ()
    """First and last + 1 of the samples that are damaged."""
    collective_timeout_s: float | None = None


@dataclass
class Self:
    """What a fault needs to know about the rank that it strikes."""

    rank: int
    local_rank: int
    node: str
    node_folder: Path | None
    job_folder: Path | None
    checkpoints: Path
    loader: Loader | None = None
    ring: Ring | None = None
    words: dict[str, str] = field(default_factory=dict)


def fault_folders(environment: Mapping[str, str]) -> tuple[Path | None, Path | None]:
    """Return the node's folder and the folder of armed faults of the job, where the scheduler has named them."""
    node, job = environment.get("NIGHTSHIFT_NODE_DIR"), environment.get("NIGHTSHIFT_FAULT_DIR")
    return (Path(node) if node else None), (Path(job) if job else None)


def read_armed(folder: Path | None) -> list[tuple[Path, FaultFile]]:
    """Return the faults of a folder, by name."""
    if folder is None or not folder.is_dir():
        return []
    armed = []
    for path in sorted(folder.glob("*.json")):
        try:
            stored: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError:
            continue  # another rank has just fired it
        armed.append((path, FaultFile(**{key: stored[key] for key in FaultFile.__dataclass_fields__ if key in stored})))
    return armed


class Faults:
    """The faults that are armed for one rank."""

    def __init__(self, process: Self) -> None:
        """Look at what is armed now."""
        self.process = process
        self._armed_by_names: tuple[tuple[str, ...], list[tuple[Path, FaultFile]]] = ((), [])

    def armed(self) -> list[tuple[Path, FaultFile]]:
        """Return what is armed for our node and our job; files are read again only when their names change."""
        node = self.process.node_folder
        folders = [node / "armed" if node else None, self.process.job_folder]
        names = tuple(
            name for folder in folders if folder and folder.is_dir() for name in sorted(entry.name for entry in os.scandir(folder))
        )
        if names != self._armed_by_names[0]:
            self._armed_by_names = (names, [armed for folder in folders for armed in read_armed(folder)])
        return self._armed_by_names[1]

    def bad_samples(self) -> list[tuple[int, int]]:
        """Return the ranges of samples that are damaged."""
        return [(fault.samples[0], fault.samples[1]) for _, fault in self.armed() if fault.how == "bad_samples"]

    def collective_timeout_s(self, usual: float) -> float:
        """Return how long a collective may wait, where an armed fault changes it."""
        return next((fault.collective_timeout_s for _, fault in self.armed() if fault.collective_timeout_s), usual)

    def strike(self, on: str, step: int) -> bool:
        """Let the due fault happen.

        Args:
            on: Where training stands: step, save or evaluation.
            step: The step that is being made, saved or evaluated.

        Returns:
            Whether the evaluation is broken; other faults end or change this process themselves.
        """
        for path, fault in self.armed():
            if fault.on == on and step >= fault.at_step and fault.how != "bad_samples" and self._is_mine(fault):
                if fault.once:
                    path.replace(path.with_suffix(".fired"))
                self._happen(fault, step)
                return fault.how == "broken_evaluation"
        return False

    def _is_mine(self, fault: FaultFile) -> bool:
        return fault.rank in (None, self.process.rank) and fault.local_rank in (None, self.process.local_rank)

    def _happen(self, fault: FaultFile, step: int) -> None:
        self.process.words |= {"step": str(step), "worker": str(self.process.loader.pid if self.process.loader else 0)}
        if self.process.node_folder is not None and fault.kernel:
            at = time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime())
            with (self.process.node_folder / "kernel.log").open("a", encoding="utf-8") as file:
                file.writelines(f"[{at}] {self._filled(line)}\n" for line in fault.kernel)
        if fault.damages == "tracker":
            write_tracker(self.process.checkpoints, step)
        if fault.damages == "newest":
            damage(newest_complete(self.process.checkpoints))
        if fault.prints:
            sys.stderr.write("".join(f"{self._filled(line)}\n" for line in fault.prints))
            sys.stderr.flush()
        self._end(fault)

    def _end(self, fault: FaultFile) -> None:
        match fault.how:
            case "raise":
                raise named_exception(fault.exception, self._filled(fault.message))
            case "stall_link" if self.process.ring is not None:
                self.process.ring.stalled = True
            case "hang":
                time.sleep(FOR_EVER_S)
            case "kill_worker" if self.process.loader is not None:
                self.process.loader.kill()
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "node_down" if self.process.node_folder is not None:
                (self.process.node_folder / "down").write_text("Not responding", encoding="utf-8")
                time.sleep(FOR_EVER_S)  # until whoever watches the node kills everything on it
            case "storage_down":
                until = time.time() + fault.outage_s
                (self.process.checkpoints / OUTAGE).write_text(f"{until:.3f}", encoding="utf-8")
            case "eat_memory":
                eat_memory()
            case "fill_disk":
                fill_disk(Path(os.environ["NIGHTSHIFT_SCRATCH"]))

    def _filled(self, text: str) -> str:
        words = {
            "rank": str(self.process.rank),
            "local_rank": str(self.process.local_rank),
            "node": self.process.node,
            "pid": str(os.getpid()),
            "time": time.strftime("%m%d %H:%M:%S.", time.gmtime()) + f"{time.time() % 1 * 1e9:09.0f}",
            **self.process.words,
        }
        for word, value in words.items():
            text = text.replace(f"{{{word}}}", value)
        return text


def eat_memory() -> None:
    """Take memory, page by page, until this process is killed; at most 4 GiB, which no drill's limit lets pass."""
    blocks = []
    for _ in range(256):
        blocks.append(bytearray(os.urandom(1 << 20)) * 16)
        time.sleep(0.05)
    time.sleep(FOR_EVER_S)


def fill_disk(folder: Path) -> None:
    """Write until the disk is full.

    Raises:
        OSError: It is: what the kernel says.
        ValueError: It is no small scratch disk, and nobody else's disk is to be filled.
    """
    disk = os.statvfs(folder)
    if disk.f_frsize * disk.f_blocks > 1 << 30:
        raise ValueError(f"{folder} is larger than 1 GiB; name a small disk in NIGHTSHIFT_SCRATCH")
    with (folder / "cache.bin").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))


def damage(checkpoint: Path | None) -> None:
    """Flip bytes inside the parameters of a checkpoint and leave sizes and manifest as they are."""
    if checkpoint is None:
        return
    with (checkpoint / "model.npz").open("r+b") as file:
        file.seek(0, os.SEEK_END)
        place = file.tell() // 3
        file.seek(place)
        block = file.read(64)
        file.seek(place)
        file.write(bytes(byte ^ 0x5A for byte in block))


# How a real training job would say that it dies: PyTorch's prefixed tracebacks and watchdog, NCCL's warnings.
#
# Nightshift must be tried on the words that it will meet, so the demo's trainer uses them. Sources: PyTorch 2.4
# ProcessGroupNCCL.cpp and torch/distributed, NCCL 2.20 misc/socket.cc.

BACKEND = "../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"


def _glog(rank: int) -> str:
    """Return the head of a line that PyTorch's C++ logger prints for an error."""
    at = time.time()
    clock = time.strftime("%m%d %H:%M:%S", time.gmtime(at))
    return f"[rank{rank}]:[E{clock}.{int(at % 1 * 1e9):09d} ProcessGroupNCCL.cpp"


def peer_gone_lines(error: PeerGone, *, node: str, local_rank: int) -> tuple[str, str]:
    """Return NCCL's warning and the text of the exception that PyTorch raises after it."""
    pid, thread = os.getpid(), threading.get_native_id() + 61
    last = f"socketProgress: Connection closed by remote peer {error.node}<{error.port}>"
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
    error: Exception = kind(message)
    return error


def prefix_tracebacks(rank: int) -> None:
    """Print the traceback of a crash as PyTorch does in a distributed job: each line with its rank, in one write."""

    def print_it(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace)).rstrip("\n")
        sys.stderr.write("".join(f"[rank{rank}]: {line}\n" for line in text.split("\n")))
        sys.stderr.flush()

    sys.excepthook = print_it
