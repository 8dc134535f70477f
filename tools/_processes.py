"""Read what the processes of a job have open for writing: the script for a node, and the parser of its answer. Pure.

The script selects the processes of the job's user whose control group is the job's (`job_4821` in it); where control groups name no
job, those that `scontrol listpids` lists or whose environment has the job's SLURM_JOB_ID. A process that belongs to the control
group of another job is never taken. Records end with NUL, which no path and no variable can hold. Needs GNU find and grep.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from assistant.records.jobs import NONE_THERE, OpenFile, ProcessFolder
from assistant.redact import redact

MARK = "#nightshift processes"
MOST_PROCESSES = 512
"""Of a job on one node, lowest process ids first."""
MOST_USER_PROCESSES = 8192
"""Of the job's user on one node: the job's own are looked for among these."""
MOST_FILES_EACH = 64
"""Files open for writing of one process."""
MOST_FILES = 512
"""Files open for writing on one node."""
MOST_VARIABLES_OF = 64
"""Processes whose environment is read."""
ANSWER_BYTES = 1 << 20
STEP_S = 6
"""For one question to the kernel: a file system that hangs costs no more than that."""
PATH_BYTES = 4096

VARIABLES = (
    r"(?:[A-Z][A-Z0-9]*_)?(?:OUTPUTS?|OUT|SAVE|SAVES|CKPTS?|CHECKPOINTS?|LOGS?|LOGGING|RUN|EXP|EXPERIMENT|RESULTS?|TENSORBOARD|TB|WANDB)"
    r"_?(?:DIR|DIRECTORY|PATH|FOLDER|ROOT)|HYDRA_[A-Z_]{1,40}|NIGHTSHIFT_CHECKPOINTS"
)
"""Variables that say where a program writes."""
_NODE_VARIABLE = "SLURMD_NODENAME"
_SCRIPT = r"""
LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin:/usr/sbin; exec 2>/dev/null
end() { printf '\n%s\0%s\0' '<<MARK>>' "$1"; exit 0; }
t() { timeout -k 1 <<STEP>> "$@"; }
find --version | grep -q GNU || end 'GNU find is not there'
uid=$(id -u <<USER>>) || end 'the account of the job is not known'
no() { case $(id -u) in 0|"$uid") end '<<NONE>>' ;; esac
end '<<NONE>>, or its processes may not be looked at'; }
all=$(find /proc -maxdepth 1 -name '[0-9]*' -uid "$uid" -printf '%f\n' | sort -n | head -n <<ALL>>)
[ -n "$all" ] || no
in_group() { t grep -lsE "slurm[^:]*/job_$1(/|\$)" $(printf '/proc/%s/cgroup ' $all) /dev/null | cut -d/ -f3; }
mine=$(in_group '(<<JOB>>)'); theirs=" $(in_group '[0-9]+' | tr '\n' ' ') "; known=" $(echo $all) "
listed=$(for j in <<JOBS>>; do t scontrol listpids $j; done | awk '$1 ~ /^[0-9]+$/ { print $1 }')
marked=$(t grep -lszxE 'SLURM_JOB_ID=(<<JOB>>)' $(printf '/proc/%s/environ ' $all) /dev/null | cut -d/ -f3)
ps=$({ echo $mine; for p in $listed $marked; do case $theirs in *" $p "*) continue ;; esac
case $known in *" $p "*) echo $p ;; esac; done; } | tr ' ' '\n' | grep -xE '[0-9]+' | sort -nu | head -n <<PROCESSES>>)
[ -n "$ps" ] || no
of() { printf "/proc/%s/$1 " $ps; }
{
printf '\n%s\0\0%s\0' '<<MARK>>' "$(readlink /proc/$$/ns/mnt)"
printf 'link\0'; t find $(of cwd) $(of ns/mnt) $(of exe) -maxdepth 0 -printf '%p\0%l\0'
printf 'file\0'; t find -L $(of cwd) -maxdepth 0 -type d -printf '%p\0%i\0'
writing=$(t find $(of fdinfo) -maxdepth 1 -type f -exec grep -lsE '^flags:[[:space:]]+0[0-7]*[1256]$' '{}' + |
awk -F/ '++n[$3] <= <<EACH>>' | head -n <<FILES>>)
if [ -n "$writing" ]; then fds=$(echo "$writing" | sed 's/fdinfo/fd/')
printf 'link\0'; t find $fds -maxdepth 0 -printf '%p\0%l\0'
printf 'file\0'; t find -L $fds -maxdepth 0 -type f -printf '%p\0%s %i %n %B@\0'
printf 'position\0'; t grep -szHZ '' $writing; fi
printf 'state\0'; t grep -szHZ '' $(of stat)
printf 'waits\0'; t grep -szHZ '' $(of wchan)
printf 'command\0'; t grep -szaHZ -m 40 '' $(of cmdline)
printf 'variables\0'
for p in $(echo "$ps" | head -n <<ENVIRONMENTS>>); do printf '/proc/%s/environ\0' $p
t grep -szaE -m 40 '^(<<NAMES>>)=' /proc/$p/environ; printf '\0'; done
own=$(readlink /proc/$$/ns/mnt)
other=$(t find $(of ns/mnt) -maxdepth 0 -printf '%l %p\n' | grep -vF "$own" | sort -u -k1,1 | cut -d/ -f3 | head -n 4)
if [ -n "$other" ]; then printf 'mounts\0'; t grep -szHZ '' $(printf '/proc/%s/mountinfo ' $other) /proc/$$/mountinfo; fi
printf 'end\0'
} | head -c <<BYTES>>
"""


def command(jobs: Sequence[str], user: str) -> tuple[str, ...]:
    """Return the command that lists the processes of a job on a node.

    Args:
        jobs: Numbers under which the scheduler's control groups and variables name the job, digits only.
        user: Account of the job; empty: that of the command itself.
    """
    values = {
        "MARK": MARK,
        "NONE": NONE_THERE,
        "STEP": STEP_S,
        "USER": shlex.quote(user) if user else "",
        "ALL": MOST_USER_PROCESSES,
        "JOB": "|".join(jobs),
        "JOBS": " ".join(jobs),
        "PROCESSES": MOST_PROCESSES,
        "EACH": MOST_FILES_EACH,
        "FILES": MOST_FILES,
        "ENVIRONMENTS": MOST_VARIABLES_OF,
        "NAMES": f"{VARIABLES}|{_NODE_VARIABLE}".replace("(?:", "("),
        "BYTES": ANSWER_BYTES,
    }
    return ("sh", "-c", re.sub(r"<<([A-Z]+)>>", lambda match: str(values[match[1]]), _SCRIPT))


SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh", "ash", "busybox"))


@dataclass(frozen=True, slots=True)
class ProcessState:
    """A process of a job that the kernel does not run."""

    pid: int
    program: str
    """As in `NodeProcesses.programs`; of a dead process the name that the kernel keeps."""
    state: str
    """As in /proc/PID/stat: T stopped, t held by a debugger, D waits in the kernel, Z dead. Source: proc(5)."""
    waits_in: str = ""
    """Function of the kernel in which it waits; empty where that may not be seen."""


@dataclass
class NodeProcesses:
    """What the processes of a job on one node write."""

    files: list[OpenFile] = field(default_factory=list)
    folders: list[ProcessFolder] = field(default_factory=list)
    processes: int = 0
    """Number of processes that were looked at."""
    programs: tuple[str, ...] = ()
    """Names of the files that they run, each once, sorted; Python's with its program: `python3.11 train.py`."""
    scripts: tuple[str, ...] = ()
    """File names of the scripts that its shells run, each once, sorted; an empty one for a shell whose script is not told."""
    states: tuple[ProcessState, ...] = ()
    """Of every process, lowest id first."""
    left_out: int = 0
    """Paths that are not given: deleted files, folders that only a container sees, text that is no path."""
    why: str = ""
    """Why the processes of the node are not known; empty where they are."""


@dataclass
class _Answer:
    """Records of an answer, by section."""

    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    positions: dict[str, str] = field(default_factory=dict)
    variables: dict[str, list[str]] = field(default_factory=dict)
    mounts: dict[str, str] = field(default_factory=dict)
    commands: dict[str, list[str]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)


def node_processes(node: str, text: str, at: datetime) -> NodeProcesses:
    """Return what the script printed on a node.

    Args:
        node: Its name; processes of virtual nodes on one machine are told apart by their SLURMD_NODENAME.
        text: Standard output of the script; one that is cut off counts as far as it goes.
        at: Time of the look.
    """
    _, mark, printed = text.partition(f"{MARK}\0")
    if not mark:
        return NodeProcesses(why="its answer is cut off")
    why, _, printed = printed.partition("\0")
    if why:
        return NodeProcesses(why=why[:200])
    own, _, printed = printed.partition("\0")
    answer = _read(printed)
    elsewhere = {
        pid
        for pid, values in _by_process(answer.variables)
        for variable in values
        if variable.startswith(f"{_NODE_VARIABLE}=") and variable[16:] != node
    }
    report = NodeProcesses()
    views = _Views(answer, own)
    started = [
        (link, answer.commands.get(f"{key.removesuffix('/exe')}/cmdline", ()))
        for key, link in answer.links.items()
        if key.endswith("/exe") and int(key.split("/")[2]) not in elsewhere
    ]
    report.programs = tuple(sorted({_program_name(link, words) for link, words in started}))
    report.scripts = tuple(sorted({_script_name(words) for link, words in started if PurePosixPath(link).name in SHELLS}))
    report.states = tuple(_states(answer, elsewhere))
    folders = {int(key.split("/")[2]): link for key, link in answer.links.items() if key.endswith("/cwd")}
    folders = {pid: link for pid, link in folders.items() if pid not in elsewhere}
    report.processes = len(folders)
    if not folders:
        report.why = "the job's processes may not be looked at from this account" if not elsewhere else NONE_THERE
        return report
    reported: set[tuple[str, str]] = set()
    for pid, link in sorted(folders.items()):
        inode = answer.files.get(f"/proc/{pid}/cwd", "")
        folder = ProcessFolder(Path("/"), node, pid, at, inode=int(inode) if re.fullmatch(r"\d{1,20}", inode, re.ASCII) else 0)
        _add_folder(report, reported, views.outside(pid, link), folder)
    for pid, values in _by_process(answer.variables):
        for variable in () if pid in elsewhere else values:
            name, _, value = variable.partition("=")
            if name == _NODE_VARIABLE or not re.fullmatch(VARIABLES, name) or "://" in value or redact(variable) != variable:
                continue
            inside = posixpath.normpath(posixpath.join(folders.get(pid, ""), value)) if value else ""
            _add_folder(report, reported, views.outside(pid, inside), ProcessFolder(Path("/"), node, pid, at, name))
    for key, status in answer.files.items():
        pid = int(key.split("/")[2])
        if pid in elsewhere or "/fd/" not in key:
            continue
        file = _file(answer, views, key, status, OpenFile(Path("/"), node, pid, at, 0, 0, 0, appends=False))
        if file is None:
            report.left_out += 1
        elif ("file", str(file.path)) not in reported:
            reported.add(("file", str(file.path)))
            report.files.append(file)
    return report


_STAT = re.compile(r"(\d{1,10}) \((.{0,64})\) ([A-Za-z]) ", re.DOTALL)


def _states(answer: _Answer, elsewhere: Collection[int]) -> Iterator[ProcessState]:
    for key, text in sorted(answer.states.items(), key=lambda item: int(item[0].split("/")[2])):
        folder, stat = key.removesuffix("/stat"), _STAT.match(text)
        if stat is None or int(stat[1]) in elsewhere:
            continue
        link = answer.links.get(f"{folder}/exe", "")
        name = _program_name(link, answer.commands.get(f"{folder}/cmdline", ())) if link else stat[2]
        waits_in = answer.waits.get(f"{folder}/wchan", "").strip()
        function = waits_in if re.fullmatch(r"[A-Za-z_][\w.]{0,80}", waits_in) else ""
        yield ProcessState(int(stat[1]), " ".join(name.split())[:100], stat[3], function)


def _program_name(link: str, words: Sequence[str]) -> str:
    """Return the name of the file that a process runs, and of Python's program; Python alone where that cannot be told."""
    name = PurePosixPath(link.removesuffix(" (deleted)")).name
    if words and (titled := re.match(r"ray::[\w.:-]{1,80}", words[0])) is not None:
        return titled[0]  # what a worker of Ray calls itself: `ray::IDLE` has nothing to do
    if not name.startswith("python"):
        return name
    arguments = list(words[1:])
    while arguments and arguments[0].startswith("-") and arguments[0] not in ("-m", "-c", "-"):
        arguments = arguments[2:] if arguments[0] in ("-X", "-W") else arguments[1:]
    if arguments[:1] == ["-m"]:
        arguments = arguments[1:]
    program = PurePosixPath(arguments[0]).name if arguments and not arguments[0].startswith("-") else ""
    if re.search(r"/ray/(?:\w{1,40}/){0,6}[\w.]{1,60}$", arguments[0] if arguments else ""):
        program = f"ray/{program}"  # of its package: others have an agent.py, too
        return f"{name} {program}" if re.fullmatch(r"ray/[\w.+-]{1,100}", program) else name
    return f"{name} {program}" if re.fullmatch(r"[\w.+-]{1,100}", program) else name


def _script_name(words: Sequence[str]) -> str:
    """Return the file name of the script that a shell runs; empty where it runs a text, or its words may not be seen."""
    arguments = [word for word in words[1:] if not word.startswith(("-", "+")) or word == "-c"]
    return PurePosixPath(arguments[0]).name if arguments and arguments[0] != "-c" else ""


def _add_folder(report: NodeProcesses, reported: set[tuple[str, str]], path: str, folder: ProcessFolder) -> None:
    if not path:
        report.left_out += 1
    elif path != "/" and (folder.variable, path) not in reported:
        reported.add((folder.variable, path))
        report.folders.append(replace(folder, path=Path(path)))


def _file(answer: _Answer, views: _Views, key: str, status: str, file: OpenFile) -> OpenFile | None:
    """Return an open file with its facts; None for one that has no name any more, or whose facts cannot be read."""
    numbers = re.fullmatch(r"(\d{1,18}) (\d{1,20}) (\d{1,9}) (-?\d{1,18})[.\d-]*", status)
    position = re.search(r"^pos:\s+(\d{1,18})$", answer.positions.get(key.replace("/fd/", "/fdinfo/"), ""), re.MULTILINE)
    flags = re.search(r"^flags:\s+([0-7]{1,12})$", answer.positions.get(key.replace("/fd/", "/fdinfo/"), ""), re.MULTILINE)
    path = views.outside(file.pid, answer.links.get(key, ""))
    if numbers is None or position is None or flags is None or not path or int(numbers[3]) == 0:
        return None
    mode, born = int(flags[1], 8), int(numbers[4])
    return replace(
        file,
        path=Path(path),
        inode=int(numbers[2]),
        size_bytes=int(numbers[1]),
        offset_bytes=int(position[1]),
        appends=bool(mode & 0o2000),
        write_only=mode & 3 == 1,
        created=datetime.fromtimestamp(born, UTC) if 0 < born < 10**11 else None,
    )


def _by_process(variables: Mapping[str, list[str]]) -> list[tuple[int, list[str]]]:
    return sorted((int(key.split("/")[2]), values) for key, values in variables.items())


_PAIRS = ("link", "file", "position", "mounts", "state", "waits")
_KEY = re.compile(r"/proc/\d{1,10}/(?:cwd|exe|ns/mnt|fd/\d{1,10}|fdinfo/\d{1,10}|environ|cmdline|mountinfo|stat|wchan)")


def _read(text: str) -> _Answer:
    """Read the sections of an answer; a record that is not whole ends it."""
    answer = _Answer()
    tables = dict(
        zip(_PAIRS, (answer.links, answer.files, answer.positions, answer.mounts, answer.states, answer.waits), strict=True)
    )
    words = iter(text.split("\0")[:-1])
    section = ""
    for word in words:
        if word in tables or word in ("variables", "command"):
            section = word
        elif word == "end" or not _KEY.fullmatch(word):
            break
        elif section == "variables":
            answer.variables[word] = list(_until_empty(words))
        else:
            value = next(words, None)
            if value is not None and section == "command":
                answer.commands.setdefault(word, []).append(value)
            elif value is not None and section:
                tables[section].setdefault(word, value)
    return answer


def _until_empty(words: Iterator[str]) -> Iterator[str]:
    for word in words:
        if not word:
            return
        yield word


class _Views:
    """Paths of processes as the node itself sees them.

    A process in a container has its own mounts: its path is looked for on the same device, below a mount of the node.
    """

    def __init__(self, answer: _Answer, own: str) -> None:
        self._spaces = {int(key.split("/")[2]): link for key, link in answer.links.items() if key.endswith("/ns/mnt")}
        self._own = own
        self._mounts: dict[str, list[_Mount]] = {}
        for key, text in answer.mounts.items():
            self._mounts.setdefault(self._spaces.get(int(key.split("/")[2]), own), mounts_of(text))

    def outside(self, pid: int, path: str) -> str:
        """Return a path of a process as the node sees it; empty where it is none, or the node does not see it."""
        if not is_path(path):
            return ""
        space = self._spaces.get(pid)
        if not self._own or space is None or space == self._own:
            return path
        return translated(path, self._mounts.get(space, ()), self._mounts.get(self._own, ()))


def is_path(text: str) -> bool:
    """Tell whether a text is an absolute path of a file that still has its name and that can be written down."""
    if not text.startswith("/") or len(text.encode("utf-8", "replace")) > PATH_BYTES or text.endswith(" (deleted)"):
        return False
    # U+FFFD stands for bytes that are no UTF-8: the name is not known
    return text.isprintable() and "\ufffd" not in text and not text.startswith(("/dev/", "/proc/", "/sys/", "/memfd:"))


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mount, by its line of mountinfo."""

    device: str
    root: str
    """Folder of the file system that is mounted."""
    point: str


def mounts_of(text: str) -> list[_Mount]:
    """Return the mounts of a `/proc/PID/mountinfo`, in order; later ones cover earlier ones. Source: proc(5)."""
    mounts = []
    for line in text.splitlines():
        words = line.split(" ", 5)
        if len(words) == 6:
            root, point = (re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word) for word in words[3:5])
            mounts.append(_Mount(words[2], root, point))
    return mounts


def translated(path: str, inside: Sequence[_Mount], outside: Sequence[_Mount]) -> str:
    """Return a path of one mount namespace as another one sees it; empty where that does not see it."""
    below = [mount for mount in inside if _is_below(path, mount.point)]
    if not below:
        return ""
    longest = max(len(mount.point) for mount in below)
    mount = [candidate for candidate in below if len(candidate.point) == longest][-1]
    on_device = posixpath.normpath(posixpath.join(mount.root, posixpath.relpath(path, mount.point)))
    for outer in reversed(outside):
        if outer.device == mount.device and _is_below(on_device, outer.root):
            outer_path = posixpath.normpath(posixpath.join(outer.point, posixpath.relpath(on_device, outer.root)))
            covering = [candidate for candidate in outside if _is_below(outer_path, candidate.point)]
            top = max(covering, key=lambda candidate: len(candidate.point), default=outer)
            if len(top.point) <= len(outer.point):
                return outer_path
    return ""


def _is_below(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(f"{folder}/")
