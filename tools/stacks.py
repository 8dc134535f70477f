"""Look at the stacks of all ranks of a job: the script that dumps them on a node, the parser of `py-spy dump`, classes of ranks.

The script finds the job's ranks by their environment, dumps each twice and prints frames; what it cannot see it says. Beside the
dumps it reads the CPU time of all processes of the job: one that works needs no GPU and no word. The parser is pure. Ranks whose
main threads stand at the same functions make one class; what stays the same in both dumps does not move.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from assistant.errors import ToolError
from assistant.nodeset import fold
from assistant.records import Risk
from assistant.tooling import Context, tool
from assistant.watch.witness import BUSY_SHARE

BEGIN = "#nightshift rank"
LISTED = "#nightshift ranks"
MISSING = "#nightshift missing"
CPU = "#nightshift cpu"
DUMP_S = 8
"""A dump takes a tenth of a second; one of a process that hangs in the kernel may never end."""
KEPT_BYTES = 32_768
"""Bytes kept of one dump: the main thread stands at its front."""
AGAIN_S = 2
"""Seconds between the two dumps of a rank."""
TICKS_A_SECOND = 100
"""USER_HZ of Linux."""

_SCRIPT = (
    "LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/local/bin:/usr/bin:/bin; exec 2>/dev/null; "
    'spy() {{ timeout -k 1 {dump_s} {py_spy} dump --nonblocking --pid "$1" | head -c {kept}; }}; '
    "found=$(grep -lszxF {mark} /proc/[0-9]*/environ | cut -d/ -f3); ranks=; "
    'env_of() {{ tr "\\0" "\\n" <"/proc/$1/environ" | sed -n "s/^$2=//p" | head -n 1; }}; '
    # programs of plain srun, of MPI and of PMI have no RANK; the launcher of ranks has such a variable, too, so RANK goes first
    "by=; for v in RANK OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK SLURM_STEP_NUM_TASKS SLURM_PROCID; do "
    "for p in $(grep -lszE \"^$v=\" $(printf '/proc/%s/environ ' $found) /dev/null | cut -d/ -f3); do "
    'case $(tr "\\0" " " <"/proc/$p/cmdline") in *python*) by=$v; break 2 ;; esac; done; done; '
    "name=$by; case $by in RANK) size=WORLD_SIZE ;; OMPI*) size=OMPI_COMM_WORLD_SIZE ;; PM*) size=PMI_SIZE ;; "
    "*) name=SLURM_PROCID; size=SLURM_STEP_NUM_TASKS ;; esac; jobs=; "
    'for p in $found; do {also} jobs="$jobs $p"; [ -n "$by" ] && [ -n "$(env_of $p $by)" ] || continue; r=$(env_of $p $name); '
    '[ -n "$r" ] || continue; '
    "case $(tr '\\0' ' ' <\"/proc/$p/cmdline\") in *python*) ;; *) continue ;; esac; "
    "u=$(sed -n 's/^PPid:[^0-9]*//p' \"/proc/$p/status\"); "
    '[ "$(env_of $u $name)" = "$r" ] && case $(tr "\\0" " " <"/proc/$u/cmdline") in *python*) continue ;; esac; '
    'ranks="$ranks $p:$r:$(env_of $p $size):$(env_of $p SLURMD_NODENAME)"; done; '
    "echo; echo '{listed}' $ranks; "
    'cpu() {{ [ -n "$jobs" ] && {{ cat /proc/uptime; cat $(printf "/proc/%s/stat " $jobs); }} | '
    "sed 's/^\\([0-9]*\\) (.*) /\\1 /' | awk -v n=$1 '{{ if (NF < 9) print \"{cpu}\", n, $1; "
    'else printf "{cpu} %s %s %.0f\\n", n, $1, $13 + $14 }}\'; }}; echo; '
    "command -v {py_spy_name} >/dev/null || {{ cpu 1; sleep {again_s}; cpu 2; echo '{missing} {py_spy_name}'; exit 0; }}; cpu 1; "
    "d=$(mktemp -d /dev/shm/nightshift.XXXXXX || mktemp -d) || exit 98; trap 'rm -rf \"$d\"' EXIT; "
    'for n in 1 2; do for one in $ranks; do p=${{one%%:*}}; spy $p >"$d/$p.$n" & done; wait; '
    "[ $n = 1 ] && sleep {again_s}; done; cpu 2; "
    'for one in $ranks; do p=${{one%%:*}}; t=${{one#*:}}; s=$(sed -n "s/^State:[^A-Z]*\\([A-Z]\\).*/\\1/p" "/proc/$p/status"); '
    'for n in 1 2; do echo; echo "{begin} ${{t%%:*}} $p $n $s"; cat "$d/$p.$n"; done; done; exit 0'
)


@dataclass(frozen=True, slots=True)
class Frame:
    """A function on a stack."""

    function: str
    file: str
    """Last two parts of its path: `distributed/distributed_c10d.py`."""
    line: int


@dataclass(frozen=True, slots=True)
class RankStack:
    """Where the main thread of one rank stands."""

    rank: int
    node: str
    frames: tuple[Frame, ...]
    """Innermost first."""
    moved: bool
    """Whether the second dump shows another place."""
    state: str = ""
    """Of the process: R, S, D …"""
    home: str = ""
    """The node that its environment names; tells apart nodes that are one machine."""
    busy: bool = False
    """Whether its process used CPU time between the two dumps."""


@dataclass(frozen=True, slots=True)
class NodeStacks:
    """The stacks of the ranks on one node."""

    stacks: tuple[RankStack, ...]
    undumped: tuple[int, ...] = ()
    """Ranks that run there and whose stack could not be dumped."""
    world: int | None = None
    why: str = ""
    """Why no stack of the node is known; empty where one is."""
    cpu_share: float | None = None
    """Of one core, by the process of the job that used most between two looks; None where none was seen twice."""


@dataclass
class StackClass:
    """Ranks that stand at the same place."""

    place: str
    waits: bool
    stacks: list[RankStack] = field(default_factory=list)


def command(job_id: str, py_spy: Sequence[str] = ("py-spy",)) -> tuple[str, ...]:
    """Return the command that lists and dumps the ranks of a job on a node.

    Args:
        job_id: `4821`, `18_3` for a task of an array, `20+1` for a part of a heterogeneous job.
        py_spy: The program, with words before it where other rights are needed.
    """
    array, _, task = job_id.partition("_")
    number = job_id.partition("+")[0]
    mark = f"SLURM_ARRAY_JOB_ID={array}" if task else f"SLURM_JOB_ID={number}"
    also = f'[ "$(env_of $p SLURM_ARRAY_TASK_ID)" = {shlex.quote(task)} ] || continue;' if task else ""
    values = {
        "dump_s": DUMP_S,
        "kept": KEPT_BYTES,
        "again_s": AGAIN_S,
        "begin": BEGIN,
        "listed": LISTED,
        "missing": MISSING,
        "cpu": CPU,
    }
    script = _SCRIPT.format(
        mark=shlex.quote(mark), also=also, py_spy=shlex.join(py_spy), py_spy_name=shlex.quote(py_spy[-1]), **values
    )
    return ("sh", "-c", script)


_HEAD = re.compile(rf"^{BEGIN} (\d{{1,18}}) (\d{{1,18}}) ([12]) ?([A-Z]?)$")
_THREAD = re.compile(r"^Thread (?:0x)?[0-9A-Fa-f]+ \(([^)]*)\)(?:: \"(.*)\")?\s*$")
_FRAME = re.compile(r"^\s++(\S.{0,255}?) \((.{1,1000}?)(?::(\d{1,18}))?\)\s*$")


def node_stacks(node: str, text: str) -> NodeStacks:
    """Return the stacks that the script printed on a node."""
    listed = re.search(rf"^{LISTED}(.*)$", text, re.MULTILINE)
    if listed is None:
        return NodeStacks((), why="its answer is cut off")
    ranks = [fields.split(":") for fields in listed[1].split()]
    worlds = [int(fields[2]) for fields in ranks if len(fields) > 2 and fields[2].isdecimal()]
    world = max(worlds, default=None)
    numbers = [int(fields[1]) for fields in ranks if fields[1].isdecimal()]
    homes = {fields[1]: fields[3] for fields in ranks if len(fields) > 3}
    pids = {int(fields[1]): int(fields[0]) for fields in ranks if fields[0].isdecimal() and fields[1].isdecimal()}
    shares = cpu_shares(text)
    most = max(shares.values(), default=None)
    if missing := re.search(rf"^{MISSING} (.*)$", text, re.MULTILINE):
        return NodeStacks((), tuple(numbers), world, f"{missing[1]} is not there; install it (pip install py-spy)", most)
    if not numbers:
        return NodeStacks((), why="no rank of the job was found, or its processes may not be looked at", cpu_share=most)
    dumps: dict[tuple[int, int], tuple[str, list[str]]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            lines = []
            dumps[int(head[1]), int(head[3])] = (head[4], lines)
        else:
            lines.append(line)
    stacks, undumped = [], []
    for rank in sorted(numbers):
        (state, first), (_, second) = dumps.get((rank, 1), ("", [])), dumps.get((rank, 2), ("", []))
        frames, second_frames = main_thread(first), main_thread(second)
        if frames or second_frames:
            moved = bool(frames and second_frames and frames != second_frames)
            busy = shares.get(pids.get(rank, 0), 0.0) >= BUSY_SHARE
            stacks.append(RankStack(rank, node, second_frames or frames, moved, state, homes.get(str(rank), ""), busy))
        else:
            undumped.append(rank)
    why = "" if stacks else "py-spy could not look at any rank: it needs the job's user, or root"
    return NodeStacks(tuple(stacks), tuple(undumped), world, why, most)


_CPU = re.compile(rf"^{CPU} ([12]) ([\d.]{{1,20}})(?: (\d{{1,18}}))?$", re.MULTILINE)


def cpu_shares(text: str) -> dict[int, float]:
    """Return which share of one core each process of a job used between the two looks, by process id."""
    at: dict[str, float] = {}
    ticks: dict[str, dict[int, int]] = {"1": {}, "2": {}}
    for look, word, used in _CPU.findall(text):
        if used and word.isdecimal():
            ticks[look][int(word)] = int(used)
        elif not used and re.fullmatch(r"\d+(?:\.\d+)?", word):
            at[look] = float(word)
    seconds = at.get("2", 0.0) - at.get("1", 0.0)
    if seconds <= 0:
        return {}
    return {pid: (used - ticks["1"][pid]) / TICKS_A_SECOND / seconds for pid, used in ticks["2"].items() if pid in ticks["1"]}


def main_thread(lines: Iterable[str]) -> tuple[Frame, ...]:
    """Return the frames of the main thread in what `py-spy dump` printed, innermost first; else those of the first thread."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in lines:
        thread = _THREAD.match(line)
        if thread is not None:
            threads.append((thread[2] or "", []))
        elif threads and (frame := _FRAME.match(line)) is not None:
            threads[-1][1].append(Frame(frame[1], _short(frame[2]), int(frame[3] or 0)))
    main_frames = [frames for name, frames in threads if name == "MainThread"]
    return tuple((main_frames or [frames for _, frames in threads] or [[]])[0])


def _short(path: str) -> str:
    return "/".join(PurePath(path.replace("\\", "/")).parts[-2:])


PLACES: tuple[tuple[str, bool, str], ...] = (
    ("checkpoint save", False, r"save_checkpoint|save_state_dict|async_save|(?:^|\.)save\w* \S*(?:serialization|checkpoint)"),
    ("checkpoint load", False, r"load_checkpoint|load_state_dict|(?:^|\.)load\w* \S*(?:serialization|checkpoint|safetensors)"),
    ("evaluation", False, r"\b(?:evaluate|evaluation_loop|eval_step|validate|validation_step)\b"),
    (
        "compiling",
        False,
        r"torch/_(?:inductor|dynamo)|_inductor/|_dynamo/|triton/(?:compiler|runtime)|\bcompile_fx\b|cpp_extension",
    ),
    (
        "the dataloader",
        False,
        r"utils/data|data/dataloader|_utils/fetch|\b_try_get_data\b|\b_next_data\b|dataloader|data_loader|datasets?/\w+\.py",
    ),
    (
        "{}",
        True,
        r"\b(all_reduce|all_gather(?:_into_tensor|_object)?|reduce_scatter(?:_tensor)?|all_to_all(?:_single)?|broadcast(?:_object_list)?"
        r"|barrier|monitored_barrier|batch_isend_irecv|irecv|isend|recv|send|allreduce|allgather)\b"
        r" \S*(?:distributed|c10d|comm|ring)",
    ),
    ("backward", True, r"\b(?:backward|_engine_run_backward)\b"),
    ("waiting for the GPU", True, r"\bsynchronize\b \S*(?:cuda|streams)|\b(?:item|cpu|tolist)\b \S*_tensor"),
    ("the optimizer", True, r"\bstep\b \S*(?:optim|optimizer)|clip_grad"),
    ("file access", False, r"\b(?:read|write|open|fsync|readinto|stat)\b \S*(?:pathlib|tarfile|zipfile|gzip|fsspec|posixpath)"),
    ("the network", False, r"\b(?:recv_into|getresponse|urlopen|connect|_read_status|create_connection)\b"),
    ("start-up", False, r"init_process_group|rendezvous|_store_based_barrier|import_module|_find_and_load|from_pretrained"),
    ("sleep", False, r"\bsleep\b"),
    ("forward", True, r"\b(?:forward|_call_impl)\b"),
)
"""What a frame `function file` speaks of, whether a rank waits for others there; the innermost frame that says anything counts."""
_PLACES = tuple((place, waits, re.compile(pattern)) for place, waits, pattern in PLACES)
_OUTER = ("checkpoint save", "checkpoint load", "evaluation", "compiling", "the dataloader", "start-up")
"""They say more than what is called inside them, which may be a barrier or a read."""


def place_of(frames: Sequence[Frame]) -> tuple[str, bool]:
    """Return where a stack stands in the words of training, and whether a rank waits for others there."""
    places: list[tuple[str, bool]] = []
    for frame in frames:
        text = f"{frame.function} {frame.file}"
        for place, waits, pattern in _PLACES:
            if match := pattern.search(text):
                places.append((place.format(match[1]) if "{}" in place else place, waits))
                break
    outer = next(((place, waits) for place, waits in places if place in _OUTER), None)
    if places and places[0][1] and outer is not None and outer[0] == "the dataloader":
        outer = None
    inner = frames[0] if frames else None
    unknown = f"{inner.function} ({inner.file})" if inner is not None else "nowhere"
    return outer or (places[0] if places else (unknown, False))


def classes_of(stacks: Iterable[RankStack]) -> list[StackClass]:
    """Return the classes of ranks that stand at the same place, the largest first."""
    classes: dict[str, StackClass] = {}
    for stack in stacks:
        place, waits = place_of(stack.frames)
        classes.setdefault(place, StackClass(place, waits)).stacks.append(stack)
    return sorted(classes.values(), key=lambda stack_class: (-len(stack_class.stacks), stack_class.place))


def ranks_apart(classes: Sequence[StackClass]) -> list[RankStack]:
    """Return the ranks that are somewhere else than nearly all others; none where no place has the most of them."""
    total = sum(len(stack_class.stacks) for stack_class in classes)
    if len(classes) < 2 or total < 3:
        return []
    apart = [stack for stack_class in classes[1:] for stack in stack_class.stacks]
    few = len(apart) <= max(1, total // 8)
    return sorted(apart, key=lambda stack: stack.rank) if few else []


def numbers(ranks: Iterable[int]) -> str:
    """Return rank numbers folded: `0-12,14-127`."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def sentence(classes: Sequence[StackClass], odd: Sequence[RankStack], *, unanswered: Mapping[str, str]) -> str:
    """Return the classes in one line: `127 ranks in all_reduce, rank 13 in the dataloader on node042`."""
    apart = {stack.rank for stack in odd}
    parts = []
    for stack_class in classes:
        ranks = [stack.rank for stack in stack_class.stacks if stack.rank not in apart]
        if ranks:
            parts.append(f"{len(ranks)} rank{'s' * (len(ranks) != 1)} in {stack_class.place}")
    for stack in odd[:8]:
        hung = ", in the kernel (state D)" if stack.state == "D" else ""
        parts.append(f"rank {stack.rank} in {place_of(stack.frames)[0]} on {stack.node}{hung}")
    if len(odd) > 8:
        parts.append(f"{len(odd) - 8} more elsewhere")
    parts += [f"{node}: {why}" for node, why in list(unanswered.items())[:4]]
    return ", ".join(parts)


LONGEST_S = 40.0
"""Two dumps of up to eight seconds each, and the pause between them."""
SHOWN_FRAMES = 8


@tool(risk=Risk.READ)
def stack_classes(context: Context, job: str) -> dict[str, Any]:
    """Dump the Python stacks of all ranks of a running job, merged: `classes` of ranks at one place, and `odd` ranks apart.

    `text` says it in a sentence; `moved` counts ranks that went on between two dumps, `busy` those that used the CPU meanwhile at
    a place where nobody waits; `cpu` is the largest share of a core that a process of the job used, by node, also where no rank
    was found; `unknown` says why a node shows no rank. It needs py-spy on the nodes and the job's user or root there
    (commands.py_spy in the settings names another program).

    Args:
        job: Scheduler job id.
    """
    running_job = context.scheduler.job(job)
    if running_job.state.ended or not running_job.nodes:
        raise ToolError(f"job {job} is {running_job.state}: it has no processes to look at")
    program = tuple(context.commands.get("py_spy") or ("py-spy",))
    replies = context.transport.run(running_job.nodes, command(job, program), timeout_s=LONGEST_S)
    nodes: dict[str, NodeStacks] = {}
    for node, reply in replies.items():
        if not reply.reached or reply.status:
            why = reply.err.strip()[:200] or f"ended with status {reply.status}"
            nodes[node] = NodeStacks((), why=why if not reply.reached else f"sh: {why}")
        else:
            nodes[node] = node_stacks(node, reply.out)
    return merged(nodes)


def merged(nodes: dict[str, NodeStacks]) -> dict[str, Any]:
    """Return the stacks of all nodes merged, as the answer of `stack_classes`; pure."""
    by_rank: dict[int, RankStack] = {}
    for stack in (stack for node in nodes.values() for stack in node.stacks):
        if stack.rank not in by_rank or stack.home == stack.node:
            by_rank[stack.rank] = stack
    stacks = list(by_rank.values())
    unknown = {node: answer.why for node, answer in nodes.items() if answer.why}
    expected = max((answer.world for answer in nodes.values() if answer.world is not None), default=None)
    classes = classes_of(stacks)
    odd = ranks_apart(classes)
    accounted = {stack.rank for stack in stacks} | {rank for answer in nodes.values() for rank in answer.undumped}
    absent = sorted(set(range(expected or 0)) - accounted) if not unknown else []
    text = sentence(classes, odd, unanswered=unknown)
    cpu = {node: round(answer.cpu_share, 3) for node, answer in nodes.items() if answer.cpu_share is not None}
    working = {node: share for node, share in cpu.items() if share >= BUSY_SHARE}
    if working and len(stacks) < max(expected or 0, 1):
        text = ", ".join(filter(None, (text, f"a process of the job works on the CPU of {fold(sorted(working))}")))
    if absent:
        text = ", ".join(filter(None, (text, f"rank {numbers(absent)} has no process")))
    return {
        "text": text or "no rank was seen",
        "seen": len(stacks),
        "expected": expected,
        "moved": sum(stack.moved for stack in stacks),
        "busy": sum(stack.busy and not place_of(stack.frames)[1] for stack in stacks),
        "cpu": cpu,
        "classes": [_class_values(stack_class) for stack_class in classes],
        "odd": [_rank_values(stack) for stack in odd],
        "absent": absent,
        "unknown": unknown,
    }


def _class_values(stack_class: StackClass) -> dict[str, Any]:
    ranks = numbers(stack.rank for stack in stack_class.stacks)
    nodes = fold(sorted({stack.node for stack in stack_class.stacks}))
    return {
        "where": stack_class.place,
        "waits": stack_class.waits,
        "ranks": len(stack_class.stacks),
        "named": ranks,
        "nodes": nodes,
        "stack": _frames(stack_class.stacks[0]),
    }


def _rank_values(stack: RankStack) -> dict[str, Any]:
    place, _ = place_of(stack.frames)
    return {"rank": stack.rank, "node": stack.node, "where": place, "state": stack.state, "stack": _frames(stack)}


def _frames(stack: RankStack) -> list[str]:
    return [f"{frame.function} ({frame.file}:{frame.line})" for frame in stack.frames[:SHOWN_FRAMES]]
