"""Start a job's script once in a sandbox of its owner and report what it loads: the program that a trial start runs on a node.

It travels as text (`python3 -c`), so it imports nothing but the standard library and the programs that travel with it, and runs on
Python 3.6. Its one argument is the
request, as base64 of zlib of JSON. It gives up its rights first and becomes the job's owner. In namespaces of its own (user, mount,
process, network, IPC) every file system is read-only; over those that the job writes to lies an overlay in memory, so that what
the script saves, deletes and moves is seen and never happens. There is no network but the loopback, under the names of the nodes.
srun, mpirun and torchrun are replaced by a program that starts the ranks here, or with all commands of Slurm by one that only
writes down what is asked. munge cannot be reached. Its last line of output is `NIGHTSHIFT-TRIAL` and a JSON object: status (`ran`,
`impossible`), why, exit, seconds, cpu_seconds, opened, changed, removed, output, logs, records.
"""

# What a newer Python would write does not run on the nodes' 3.6, and its output is its answer.
# ruff: noqa: B904, PTH101, PTH102, PTH103, PTH106, PTH108, PTH112, PTH113, PTH114, PTH116, PTH118, PTH119, PTH120, PTH123, T201, UP006, UP031, UP035, UP045

import base64
import ctypes
import json
import os
import pwd
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import zlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from assistant.recover.trial.changes_program import differences, is_whiteout, saves_of
from assistant.recover.trial.deadline_program import LOGGED_STEP, SPAN_S, TrialDeadline, work_of
from assistant.recover.trial.network_program import add_interfaces, interfaces_of, switch_on

Request = Dict[str, Any]

MARK = "NIGHTSHIFT-TRIAL"
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
CLONE_NEWNET, CLONE_NEWIPC = 0x40000000, 0x08000000
MS_BIND, MS_REC, MS_PRIVATE, MS_NOSUID, MS_NODEV = 4096, 16384, 1 << 18, 2, 4
AT_RECURSIVE, AT_EMPTY_PATH, MOUNT_ATTR_RDONLY, MOUNT_SETATTR = 0x8000, 0x1000, 1, 442
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG = 4, 38, 1
IN_ACCESS, IN_ISDIR = 0x1, 0x40000000
NO_FILES = frozenset(
    "proc sysfs devtmpfs devpts cgroup cgroup2 securityfs debugfs tracefs mqueue pstore bpf configfs autofs efivarfs".split()
)
MOST_ROOTS = 64
MOST_NAMED = 8
MOST_WATCHED = 2000
MOST_ENTRIES = 4000
MOST_OUTPUT = 96 * 1024
BEHIND_SAVE_S = 2.0
"""How long it goes on behind its first save: the steps behind it are logged."""


class Impossible(Exception):
    """Why nothing was started."""


libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, label: str) -> int:
    """Return the result of a call of the C library that did not fail; raise Impossible for another."""
    if result < 0:
        number = ctypes.get_errno()
        raise Impossible("%s: %s" % (label, os.strerror(number)))
    return result


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount something; raise Impossible where the kernel refuses it."""
    arguments = [text.encode() if text else None for text in (source, target, kind)]
    checked(libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), "mount %s on %s" % (kind or source, target))


def become(user: str, uid: int) -> "pwd.struct_passwd":
    """Give up all rights but those of the job's owner.

    Raises:
        Impossible: This account may not become that user, or the node knows another one by the name.
        KeyError: The node knows nobody of that name.
    """
    owner = next((entry for entry in [pwd.getpwnam(user)] if entry.pw_uid == uid != 0), None)
    if owner is None:
        raise Impossible("on the node %s is not uid %d, or is root" % (user, uid))
    if os.geteuid() != uid:
        if os.geteuid() != 0:
            raise Impossible("neither root nor %s runs commands on the node" % user)
        os.initgroups(user, owner.pw_gid)
        os.setresgid(owner.pw_gid, owner.pw_gid, owner.pw_gid)
        os.setresuid(uid, uid, uid)
    checked(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")  # else /proc/self belongs to root
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
    return owner


def enter_namespaces() -> None:
    """Enter namespaces of one's own, as the same user; raise Impossible where the kernel lets a user have none.

    The network has the loopback and the node's interfaces by their names and addresses, and no way out: a script that was told by
    which of them its ranks find each other starts as it would.
    """
    interfaces = interfaces_of()
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC
    checked(libc.unshare(flags), "users may have no namespaces of their own here")
    for name, text in (("setgroups", "deny"), ("uid_map", "%d %d 1" % (uid, uid)), ("gid_map", "%d %d 1" % (gid, gid))):
        with open("/proc/self/" + name, "w") as file:
            file.write(text)
    checked(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "mount")
    switch_on("lo")
    add_interfaces(interfaces)


def mounts() -> List[Tuple[str, str]]:
    """Return the mount points, outer ones first, with the kind of each."""
    points = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            point = before.split()[4].encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")
            points[point] = after.split()[0]
    return sorted(points.items(), key=lambda item: item[0].count("/") if item[0] != "/" else -1)


def root_of(path: str, points: Dict[str, str]) -> str:
    """Return the outermost folder of the user's own on the way to a path; an overlay of a user cannot take over another one's.

    It is the path itself where none is, and empty where the path lies in no file system that can be overlaid.
    """
    point = max((point for point in points if point == "/" or path == point or path.startswith(point + "/")), key=len)
    if points[point] in NO_FILES or path == "/":
        return ""
    parts = path[len(point) :].strip("/").split("/")
    steps = [os.path.join(point, *parts[:count]).rstrip("/") for count in range(len(parts) + 1)]
    return next((step for step in steps if step and os.stat(step).st_uid == os.getuid()), path)


def roots_of(needed: Sequence[str], optional: Sequence[str]) -> Dict[str, bool]:
    """Return the folders over which an overlay is laid, outer ones first, with whether the script needs it; and mounts in them."""
    points = dict(mounts())
    roots = {}  # type: Dict[str, bool]
    for path in list(map(os.path.realpath, needed)) + list(optional):
        root = root_of(path, points)
        if root and not any(root == outer or (root.startswith(outer + "/") and roots[outer]) for outer in roots):
            roots[root] = path in map(os.path.realpath, needed)
    for point, kind in points.items():
        inside = any(point.startswith(root + "/") for root in roots)
        if kind not in NO_FILES and inside and point not in roots and os.path.isdir(point):
            roots[point] = any(point.startswith(root + "/") for root in roots if roots[root])
    return dict(sorted(roots.items(), key=lambda item: item[0].count("/"))[:MOST_ROOTS])


def writable_folders(job_paths: Sequence[str], overlaid: Sequence[str]) -> List[str]:
    """Return the folders that stand on the way to paths which a job names, and in which it may write, outer ones first.

    Of each path that is the last folder that stands, and the one around it: a job makes a folder of its own number beside others.

    Args:
        job_paths: Absolute paths.
        overlaid: Folders that are overlaid in any case.
    """
    folders = set()
    points = dict(mounts())
    tops = [os.path.realpath(path) for path in overlaid]
    for path in job_paths:
        folder = os.path.realpath(path)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        for place in (folder, os.path.dirname(folder)):
            point = max((point for point in points if point == "/" or place == point or place.startswith(point + "/")), key=len)
            inside = any(place == top or place.startswith(top.rstrip("/") + "/") for top in tops)
            if place != "/" and not inside and points[point] not in NO_FILES and os.access(place, os.W_OK | os.X_OK):
                folders.add(place)
    outer = [place for place in folders if not any(place.startswith(top + "/") for top in folders)]
    return sorted(outer)[:MOST_NAMED]


class Layer:
    """An overlay over a folder: what was there, and what was written since."""

    def __init__(self, root: str, base: str, number: int) -> None:
        self.root, self.hidden = root, []  # type: str, List[str]
        self.lower = os.open(root, os.O_PATH | os.O_DIRECTORY)
        self.upper_path, work = "%s/upper%d" % (base, number), "%s/work%d" % (base, number)
        os.mkdir(self.upper_path)
        os.mkdir(work)
        shutil.copymode(root, self.upper_path)
        self.work = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
        self.upper = os.open(self.upper_path, os.O_RDONLY | os.O_DIRECTORY)

    def lay(self, needed: bool, inner: Sequence[str]) -> None:
        """Mount it; where that is refused, what is not needed stays read-only, and /tmp is a new one with the inner folders.

        Raises:
            Impossible: It is needed, and the kernel refuses it.
        """
        try:
            self._lay()
        except Impossible:
            if needed:
                raise
            if self.root == "/tmp":
                for path in inner:
                    os.makedirs(os.path.join(self.upper_path, path[len("/tmp/") :]), exist_ok=True)
                mount("/proc/self/fd/%d" % self.upper, self.root, "", MS_BIND)

    def _lay(self) -> None:
        options = "lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d" % (
            self.lower,
            self.upper,
            self.work,
        )
        mount("overlay", self.root, "overlay", MS_NODEV | MS_NOSUID, options + ",userxattr")

    def was_there(self, name: str) -> Optional[os.stat_result]:
        """Return what lay below a name before; what was hidden from the script did not lie there for it."""
        path = os.path.join(self.root, name)
        if any(path == hidden or path.startswith(hidden + "/") for hidden in self.hidden):
            return None
        try:
            return os.stat("/proc/self/fd/%d/%s" % (self.lower, name), follow_symlinks=False)
        except OSError:
            return None

    def entries(self) -> Iterator[Tuple[str, os.stat_result]]:
        """Yield what was written, by its name in the folder."""
        top = "/proc/self/fd/%d/" % self.upper
        for folder, folders, names in os.walk(top):
            for name in sorted(folders) + sorted(names):
                path = os.path.join(folder, name)
                try:
                    yield path[len(top) :], os.stat(path, follow_symlinks=False)
                except OSError:
                    continue


def build(request: Request, base: str) -> List[Layer]:
    """Make everything read-only, and lay the overlays.

    Raises:
        Impossible: The kernel refuses it.
    """
    mount("tmpfs", base, "tmpfs", MS_NODEV | MS_NOSUID, "size=%d,mode=700" % request["memory_bytes"])
    hosts = base + "/hosts"
    with open(hosts, "w") as file:
        file.write("127.0.0.1 localhost %s %s\n" % (socket.gethostname(), " ".join(request["nodes"])))
    optional = [path for path in ("/tmp", "/var/tmp", request["home"]) if os.path.isdir(path)]
    roots = roots_of(request["needed"], optional + writable_folders(request.get("named", []), request["needed"] + optional))
    layers = [Layer(root, base, number) for number, root in enumerate(roots)]
    tools = layers_tool_folder(layers)
    launchers = {}  # type: Dict[str, int]
    for name, text in request["launchers"].items():
        path = os.path.join(tools[0], name)
        with open(path, "w") as file:
            file.write("#!%s -I\n%s" % (sys.executable, text.replace("@FOLDER@", tools[1])))
        os.chmod(path, 0o755)
        launchers[name] = os.open(path, os.O_PATH)
    usual = request["environment"].get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    request["environment"]["PATH"] = "%s:%s" % (tools[1], usual)
    hosts_file = os.open(hosts, os.O_PATH)
    base_folder = os.open(base, os.O_PATH | os.O_DIRECTORY)
    changes = ((-100, b"/", AT_RECURSIVE, (MOUNT_ATTR_RDONLY, 0)), (base_folder, b"", AT_EMPTY_PATH, (0, MOUNT_ATTR_RDONLY)))
    for folder, name_of_root, flag, (added, cleared) in changes:  # the layers themselves are written to
        attributes = struct.pack("QQQQ", added, cleared, 0, 0)
        status = libc.syscall(MOUNT_SETATTR, folder, name_of_root, flag, attributes, ctypes.c_size_t(len(attributes)))
        checked(status, "the file systems cannot be made read-only, but for the overlays")
    for layer in layers:
        layer.lay(roots[layer.root], [inner.root for inner in layers if inner.root.startswith(layer.root + "/")])
    if os.path.isdir("/dev/shm"):
        mount("tmpfs", "/dev/shm", "tmpfs", MS_NODEV | MS_NOSUID, "size=%d,mode=1777" % request["memory_bytes"])
    for path in filter(os.path.isdir, {os.path.realpath("/run/munge"), os.path.realpath("/var/run/munge")}):
        mount("tmpfs", path, "tmpfs", MS_NODEV | MS_NOSUID, "size=4k,mode=755")
    if os.path.isfile("/etc/hosts"):
        mount("/proc/self/fd/%d" % hosts_file, "/etc/hosts", "", MS_BIND)
    for name, launcher in launchers.items():  # a login shell, or a module, sets PATH anew
        for place in [os.path.realpath(os.path.join(folder, name)) for folder in {"/usr/bin", "/usr/local/bin", *usual.split(":")}]:
            if os.path.isfile(place) and not place.startswith("/tmp/"):
                mount("/proc/self/fd/%d" % launcher, place, "", MS_BIND)
    return layers


def layers_tool_folder(layers: Sequence[Layer]) -> Tuple[str, str]:
    """Return the folder of the launchers as it is written now, and as it will be seen below /tmp."""
    layer = next((inner for inner in layers if inner.root == "/tmp" or "/tmp".startswith(inner.root + "/")), None)
    if layer is None:
        raise Impossible("/tmp cannot be overlaid")
    inside = "/tmp"[len(layer.root) :].strip("/")
    folder = os.path.join(layer.upper_path, inside)
    if not os.path.isdir(folder):
        os.makedirs(folder)
        os.chmod(folder, 0o1777)
    path = tempfile.mkdtemp(prefix="nightshift-trial-", dir=folder)
    return path, "/tmp/" + os.path.basename(path)


class Watch:
    """Notices which files of some folders are opened and read."""

    def __init__(self, folders: Sequence[str]) -> None:
        self.number = checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")
        self.paths, self.read = {}, {}  # type: Dict[int, str], Dict[str, None]
        self.read_at = 0.0
        for folder in folders:
            for path, _, _ in os.walk(folder):
                if len(self.paths) < MOST_WATCHED:
                    mark = libc.inotify_add_watch(self.number, path.encode("utf-8", "surrogateescape"), IN_ACCESS)
                    if mark >= 0:
                        self.paths[mark] = path

    def take(self) -> None:
        """Take in what has happened."""
        try:
            data = os.read(self.number, 1 << 16)
        except OSError:
            return
        place = 0
        while place + 16 <= len(data):
            mark, mask, _, length = struct.unpack_from("iIII", data, place)
            name = data[place + 16 : place + 16 + length].rstrip(b"\0").decode("utf-8", "surrogateescape")
            place += 16 + length
            if mark in self.paths and name and not mask & IN_ISDIR and len(self.read) < MOST_ENTRIES:
                self.read[os.path.join(self.paths[mark], name)] = None
                self.read_at = time.time()


def run_script(request: Request, writer: int) -> None:
    """Be the first process of the namespace: start the script, and wait for all that it leaves behind. Never returns."""
    try:
        checked(libc.unshare(CLONE_NEWNS), "unshare")  # whoever watches needs its own /proc
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
    except Impossible:
        pass  # in a container the kernel hides parts of /proc, and gives no new one; what is seen is read-only
    child = os.fork()
    if child == 0:
        try:
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.closerange(3, 4096)
            os.setsid()
            os.chdir(request["work_dir"])
            name = request["script_path"]
            os.execve(name, [name] + request["arguments"], request["environment"])
        except OSError as error:
            os.write(2, ("nightshift trial: %s\n" % error).encode())
        os._exit(127)
    os.close(writer)
    code = 0
    while True:
        try:
            pid, status = os.wait()
        except OSError:
            break
        if pid == child:
            code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    os._exit(code)


def stored_script(request: Request) -> str:
    """Write the script below /tmp and return its path."""
    path = os.path.join(request["environment"]["PATH"].split(":")[0], "slurm_script")
    text = request["script"] if request["script"].startswith("#!") else "#!/bin/sh\n" + request["script"]
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)
    os.chmod(path, 0o700)
    return path


def watched(request: Request, layers: Sequence[Layer]) -> Dict[str, Any]:
    """Run the script, for as long as it may, and return what it did."""
    for path in request["hidden"]:
        try:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        except FileNotFoundError:
            continue  # the job that still runs has rotated it away
        except OSError as error:
            raise Impossible("%s cannot be hidden: %s" % (path, error))
    for path, text in request["written"].items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    request["script_path"] = stored_script(request)
    for layer in layers:
        layer.hidden = request["hidden"]
    before = {layer.root: {name for name, about in layer.entries() if not is_whiteout(about)} for layer in layers}
    watch = Watch(request["watched"])
    reader, writer = os.pipe()
    begin = time.time()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        run_script(request, writer)
    os.close(writer)
    head, tail, ended, saved_at = b"", b"", None, None  # type: bytes, bytes, Optional[int], Optional[float]
    is_open, at_start, cpu_seconds, worked_at = True, True, 0.0, begin
    deadline = TrialDeadline(begin, request["seconds"], request["longest"])
    while ended is None and not deadline.is_over(time.time(), at_start):
        ready, _, _ = select.select([watch.number] + ([reader] if is_open else []), [], [], 0.2)
        if watch.number in ready:
            watch.take()
        if reader in ready:
            data = os.read(reader, 1 << 16)
            is_open, at_start = bool(data), at_start and LOGGED_STEP.search(data) is None
            if len(head) < MOST_OUTPUT // 2:
                head += data
            else:
                tail = (tail + data)[-MOST_OUTPUT // 2 :]
        ended_pid, status = os.waitpid(pid, os.WNOHANG)
        if ended_pid:
            ended = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        if saved_at is None and any(saves_of(request, layers, before)):
            saved_at, at_start = time.time(), False
        if watch.read and time.time() - watch.read_at > SPAN_S:
            at_start = False
        if time.time() - worked_at >= 1.0:
            worked_at, work = time.time(), work_of(pid)
            cpu_seconds = max(cpu_seconds, work[0])
            deadline.note(worked_at, work)
        if saved_at is not None and time.time() - saved_at > max(BEHIND_SAVE_S, request["seconds"] / 20.0):
            break
    watch.take()
    if ended is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    seconds = time.time() - begin
    while is_open:
        data = os.read(reader, 1 << 16)
        is_open, tail = bool(data), (tail + data)[-MOST_OUTPUT // 2 :]
    changed, removed, logs, records = differences(layers, before, request)
    output = (head + tail).decode("utf-8", "replace")
    return {
        "status": "ran", "exit": ended, "seconds": round(seconds, 1), "cpu_seconds": round(cpu_seconds, 1),
        "opened": list(watch.read), "changed": changed, "removed": removed, "output": output, "logs": logs, "records": records,
    }  # fmt: skip


def main(text: str) -> Dict[str, Any]:
    """Return what the script did.

    Raises:
        Impossible: It could not be started in a sandbox here.
    """
    request = json.loads(zlib.decompress(base64.b64decode(text)).decode("utf-8", "surrogateescape"))  # type: Request
    owner = become(request["user"], request["uid"])
    for key, value in (("HOME", owner.pw_dir), ("USER", owner.pw_name), ("LOGNAME", owner.pw_name), ("SHELL", owner.pw_shell)):
        request["environment"].setdefault(key, value)
    request["home"] = owner.pw_dir
    base = tempfile.mkdtemp(prefix="nightshift-sandbox-", dir="/tmp")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = {}  # type: Dict[str, Any]
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            os.close(reader)
            enter_namespaces()
            answer = watched(request, build(request, base))
        except (Impossible, OSError) as error:
            answer = {"status": "impossible", "why": str(error)}
        with os.fdopen(writer, "w") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    os.rmdir(base)
    return dict(json.loads(text or '{"status": "impossible", "why": "it was ended from outside"}'))


if __name__ == "__main__":
    signal.alarm(int(sys.argv[2]) if len(sys.argv) > 2 else 900)
    try:
        result = main(sys.argv[1])
    except (Impossible, KeyError, OSError, ValueError) as failure:
        result = {"status": "impossible", "why": str(failure)}
    print(MARK + " " + json.dumps(result))
