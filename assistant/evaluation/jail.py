"""The process between us and a program that is not trusted: `python -m assistant.evaluation.jail`, told on stdin what to run.

    jail      enters the name spaces, waits, ends it all when the time is over, writes how it went
    └─ init   the first process of the new process name space: when it ends the kernel kills everything inside
       └─ the program, under limits, as a user of its own where we are root

Where there is no such name space, the jail becomes the parent of all orphans and kills them until none is left.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
"""Flags of unshare(2), from linux/sched.h."""
PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 8, 36, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
"""Options of prctl(2), from linux/prctl.h."""
CAP_DAC_READ_SEARCH, CAPABILITY_VERSION_3 = 2, 0x20080522
"""From linux/capability.h."""
READS_ALL = ".reads-all"
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
"""Flags of mount(2), from linux/mount.h."""
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
"""The call and its flags; its number is the same on all machines."""
NOBODY_ID = 65534
POLL_S = 0.02
_libc = ctypes.CDLL(None, use_errno=True)
_stopped: list[bool] = []
"""Not empty once we were told to end, or who started us has died."""


def main() -> None:
    """Run the program that standard input names."""
    signal.signal(signal.SIGTERM, _stop)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if len(sys.argv) > 1 and os.getppid() != int(sys.argv[1]):
        return  # who started us has died before we could ask to be told
    spec: dict[str, Any] = json.loads(sys.stdin.buffer.read())
    limits, missing = spec["limits"], list[str]()
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    if limits["closed"]:
        missing += _enter()
        missing += _read_only(spec["folder"])
    init = os.fork()
    if init == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os._exit(_init(spec))
    status, timed_out = _wait(init, limits["wall_s"])
    _end_orphans()
    report = {"status": status, "timed_out": timed_out, "missing": missing + _reported_problems(Path(spec["folder"]))}
    Path(spec["report"]).write_text(json.dumps(report), encoding="utf-8")


def _stop(*_: object) -> None:
    _stopped.append(True)


def _enter() -> list[str]:
    """Enter name spaces of our own and return what was refused."""
    user, group = os.getuid(), os.getgid()
    if user != 0:
        if _libc.unshare(NEWUSER):
            return ["no user name space: network and processes of the node are within reach"]
        Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="utf-8")
    names = {NEWNET: "network", NEWPID: "processes", NEWIPC: "shared memory"}
    return [f"no name space of its own for {name_space}" for flag, name_space in names.items() if _libc.unshare(flag)]


def _read_only(folder: str) -> list[str]:
    """Make everything but a folder read-only for us, in a name space of mounts of our own."""
    refused = ["no mounts of its own: it may write wherever its user may"]
    if _libc.unshare(NEWNS) or _libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return refused
    writable = os.fsencode(os.path.realpath(folder))
    if _libc.mount(writable, writable, None, MS_BIND, None):
        return refused
    return refused if _set_read_only(b"/", on=True) or _set_read_only(writable, on=False) else []


def _set_read_only(path: bytes, *, on: bool) -> int:
    """Call mount_setattr(2) and return what it returns, 0 for done."""
    attributes = struct.pack("QQQQ", MOUNT_ATTR_RDONLY if on else 0, 0 if on else MOUNT_ATTR_RDONLY, 0, 0)
    return int(_libc.syscall(MOUNT_SETATTR, AT_FDCWD, path, AT_RECURSIVE if on else 0, attributes, len(attributes)))


def _wait(child: int, wall_s: float) -> tuple[int, bool]:
    """Wait for a child, kill it when its time is over, and return its exit status and whether it was."""
    deadline = time.monotonic() + wall_s
    pause = 0.001
    while True:
        pid, raw = os.waitpid(child, os.WNOHANG)
        if pid:
            status = os.waitstatus_to_exitcode(raw)
            return (128 - status if status > 128 else status), False
        if time.monotonic() > deadline or _stopped:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -int(signal.SIGKILL), not _stopped
        time.sleep(pause)
        pause = min(POLL_S, pause * 2)


def _end_orphans() -> None:
    """Kill what the program left behind: it became a child of ours."""
    while True:
        for pid in _children():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    me, children = str(os.getpid()), []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1] == me:
                children.append(int(path.parent.name))
    return children


def _init(spec: dict[str, Any]) -> int:
    """Start the program, wait for it among all orphans, and return its exit status; 128 and more for a signal."""
    program = os.fork()
    if program == 0:
        _become(spec)
    while True:
        pid, raw = os.wait()
        if pid == program:
            status = os.waitstatus_to_exitcode(raw)
            return status if status >= 0 else 128 - status


def _become(spec: dict[str, Any]) -> None:
    """Turn into the program; never returns."""
    words: Sequence[str] = spec["words"]
    try:
        with Path(os.devnull).open("rb") as null_device:
            os.dup2(null_device.fileno(), 0)
        os.chdir(spec["folder"])
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _limit(spec["limits"])
        if spec["limits"]["closed"] and os.geteuid() == 0:
            _drop(words[0], Path(spec["folder"]))
        os.execvp(words[0], list(words))
    except (OSError, ValueError) as error:
        os.write(2, f"{words[0]}: cannot be started: {error}\n".encode())
    os._exit(127)


def _limit(limits: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not limits["closed"]:
        return
    bounds = (
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
    )
    for resource_id, most in bounds:
        hard = resource.getrlimit(resource_id)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource_id, (value, value))


def _drop(program: str, folder: Path) -> None:
    """Become a user without rights, who owns the folder and nothing else; it keeps the right to read where it could not start."""
    os.chown(folder, NOBODY_ID, NOBODY_ID)
    child = os.fork()
    if child == 0:
        _set_user()
        os._exit(0 if _reaches(program, folder) else 1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        _set_user()
        return
    (folder / READS_ALL).touch()
    _libc.prctl(PR_SET_KEEPCAPS, 1)
    _set_user()
    # permitted, effective and inheritable, for capabilities 0-31 and 32-63
    only = 1 << CAP_DAC_READ_SEARCH
    _libc.capset(struct.pack("II", CAPABILITY_VERSION_3, 0), struct.pack("IIIIII", only, only, only, 0, 0, 0))
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_READ_SEARCH, 0, 0)


def _set_user() -> None:
    os.setgroups([])
    os.setresgid(NOBODY_ID, NOBODY_ID, NOBODY_ID)
    os.setresuid(NOBODY_ID, NOBODY_ID, NOBODY_ID)


def _reaches(program: str, folder: Path) -> bool:
    program_path = program if "/" in program else next((p for p in _on_path(program) if os.access(p, os.X_OK)), "")
    source = Path(__file__)
    return bool(program_path) and os.access(program_path, os.X_OK) and os.access(folder, os.W_OK) and os.access(source, os.R_OK)


def _on_path(program: str) -> list[str]:
    return [f"{folder}/{program}" for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]


def _reported_problems(folder: Path) -> list[str]:
    mark = folder / READS_ALL
    if not mark.exists():
        return []
    mark.unlink()
    return ["its user may read every file: the program or its folder lies where others may not look"]


if __name__ == "__main__":
    main()
