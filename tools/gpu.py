"""See what the GPUs of a job are at: computing, spinning in a kernel that waits, or idle.

A collective that hangs keeps a GPU at full utilisation and high clocks, while it draws little power and moves nothing over memory
and PCIe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Job, Risk
from assistant.recover.directives import gpus_of
from assistant.tooling import Context, tool

DMON_COMMAND = ("nvidia-smi", "dmon", "-s", "put", "-c", "5", "-d", "2")
"""Power, utilisation and PCIe throughput: five samples, two seconds apart; in effect for any driver from 450 on."""
_FIELDS = "nvidia-smi --query-gpu=index,utilization.gpu,utilization.memory,power.draw --format=csv,noheader,nounits"
QUERY_COMMAND = ("sh", "-c", f"{_FIELDS} && sleep 4 && {_FIELDS}")
"""Two samples where `dmon` shows nothing: it needs rights that `--query-gpu` does not."""
_ALLOTTED = (
    'LC_ALL=C; export LC_ALL; exec 2>/dev/null; for e in $(grep -lszxE "SLURM_JOB_ID=$1" /proc/[0-9]*/environ); do '
    "tr '\\0' '\\n' <\"$e\" | grep -xE 'SLURM_(JOB|STEP)_GPUS=[0-9,-]{1,200}'; done | sort -u | head -n 64; echo end"
)
BUSY_SM, LITTLE_MEMORY, LITTLE_PCIE_MB = 95.0, 5.0, 300.0
"""SM in percent, memory in percent, PCIe in MB/s. Source: thresholds of sichek (scitix), GPU hang check."""
LITTLE_POWER_W, LITTLE_POWER_NEW_W = 100.0, 160.0
"""Watts below which a busy GPU computes nothing: up to A100, and of H100 and newer (idle ones draw 60 to 120)."""
IDLE_SM = 5.0


@dataclass(frozen=True, slots=True)
class Activity:
    """One GPU over some seconds, medians of its samples; None where a driver does not count it."""

    gpu: int
    sm: float | None
    memory: float | None
    power_w: float | None
    pcie_mb_s: float | None

    def state(self, *, newer: bool = True) -> str:
        """Return computing, spinning, idle or unknown.

        Args:
            newer: Whether it is an H100 or newer, which draws more while it waits.
        """
        if self.sm is None:
            return "unknown"
        if self.sm <= IDLE_SM:
            return "idle"
        little_w = LITTLE_POWER_NEW_W if newer else LITTLE_POWER_W
        signs = [
            self.memory is not None and self.memory >= LITTLE_MEMORY,
            self.power_w is not None and self.power_w >= 1.5 * little_w,
            self.pcie_mb_s is not None and self.pcie_mb_s >= LITTLE_PCIE_MB,
        ]
        quiet = self.memory is not None and self.power_w is not None and not any(signs)
        if self.sm >= BUSY_SM and quiet:
            return "spinning"
        alone = (signs[0] and self.power_w is None) or (signs[1] and self.memory is None and self.pcie_mb_s is None)
        return "computing" if sum(signs) >= 2 or alone else "unknown"


def allotted_command(number: str) -> tuple[str, ...]:
    """Return the command that reads which GPUs of a node Slurm gave to a job, from the environment of its processes.

    Args:
        number: Of the job, as in SLURM_JOB_ID: digits.
    """
    return ("sh", "-c", _ALLOTTED, "sh", number)


def allotted_gpus(text: str, *, first: bool) -> frozenset[int]:
    """Return the numbers of a job's GPUs on a node; empty where its processes do not name them.

    Args:
        text: What the command printed.
        first: Whether it is the first node of the job: steps elsewhere inherit that one's SLURM_JOB_GPUS.
            Source: srun(1), sbatch(1).
    """
    numbers: dict[str, set[int]] = {"STEP": set(), "JOB": set()}
    for kind, value in re.findall(r"^SLURM_(STEP|JOB)_GPUS=([\d,-]{1,200})$", text, re.MULTILINE):
        for part in value.split(","):
            begin, _, end = part.partition("-")
            if begin.isdecimal() and (not end or end.isdecimal()):
                numbers[kind] |= set(range(int(begin), min(int(end or begin), int(begin) + 64) + 1))
    return frozenset(numbers["STEP"] or (numbers["JOB"] if first else ()))


def activities(text: str) -> list[Activity]:
    """Return the GPUs of what `nvidia-smi dmon` printed, by number; columns are found by their names, which differ by driver."""
    columns: list[str] = []
    samples: dict[int, list[dict[str, float]]] = {}
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            names = [word.lower() for word in words[1:]] if words[:1] == ["#"] else [word.lower().lstrip("#") for word in words]
            columns = names if "gpu" in names else columns
            continue
        if not columns or len(words) != len(columns) or not words[0].isdecimal():
            continue
        values = {name: number for name, word in zip(columns, words, strict=True) if (number := _number(word)) is not None}
        samples.setdefault(int(words[0]), []).append(values)
    return [_activity(gpu, gpu_samples) for gpu, gpu_samples in sorted(samples.items())]


def queried_gpus(text: str) -> list[Activity]:
    """Return the GPUs of what `nvidia-smi --query-gpu` printed, by number; PCIe traffic is not among it."""
    samples: dict[int, list[dict[str, float]]] = {}
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) != 4 or not words[0].isdecimal():
            continue
        fields = zip(("sm", "mem", "pwr"), words[1:], strict=True)
        samples.setdefault(int(words[0]), []).append(
            {name: number for name, word in fields if (number := _number(word)) is not None}
        )
    return [_activity(gpu, gpu_samples) for gpu, gpu_samples in sorted(samples.items())]


def _activity(gpu: int, samples: list[dict[str, float]]) -> Activity:
    def median_of(*names: str) -> float | None:
        sums = [sum(sample[name] for name in names) for sample in samples if all(name in sample for name in names)]
        return median(sums) if sums else None

    return Activity(gpu, median_of("sm"), median_of("mem"), median_of("pwr"), median_of("rxpci", "txpci"))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


LONGEST_S = 30.0
NO_PROGRAM = (126, 127)


@tool(risk=Risk.READ)
def gpu_activity(context: Context, job: str = "", nodes: list[str] | None = None) -> dict[str, Any]:
    """Look for ten seconds at what GPUs do: under `nodes` each GPU's counters and state (computing, spinning, idle, unknown).

    A collective that hangs looks busy: spinning means full utilisation with little power, no memory and no PCIe traffic. `unknown`
    says why a node shows nothing. Of a job's nodes only its own GPUs are shown, as its processes name them; where they do not, and
    the job asked for fewer than the node has, the node is unknown: others may compute on it. No process is touched.

    Args:
        job: Scheduler job id, whose nodes are meant.
        nodes: Names of the nodes, where no job is given.
    """
    target_nodes = list(nodes or ())
    running_job: Job | None = None
    if job:
        running_job = context.scheduler.job(job)
        if running_job.state.ended:
            raise ToolError(f"job {job} is {running_job.state}: its GPUs are others' now")
        target_nodes = list(running_job.nodes)
    if not target_nodes:
        raise ToolError("gpu_activity needs a running job or nodes")
    command = tuple(context.commands.get("gpu_activity") or DMON_COMMAND)
    replies = context.transport.run(target_nodes, command, timeout_s=LONGEST_S)
    unknown = {node: why for node, reply in replies.items() if (why := _why_not(reply, command[0]))}
    answer = {node: {"gpus": _gpu_rows(activities(reply.out))} for node, reply in replies.items() if node not in unknown}
    retried = [node for node in unknown if replies[node].reached and replies[node].status not in NO_PROGRAM]
    if retried:
        for node, reply in context.transport.run(retried, QUERY_COMMAND, timeout_s=LONGEST_S).items():
            if reply.reached and not reply.status and (gpus := queried_gpus(reply.out)):
                answer[node] = {"gpus": _gpu_rows(gpus)}
                del unknown[node]
    if running_job is not None and answer:
        answer, shared = _own_gpus(context, running_job, answer)
        unknown |= shared
    return {"text": _text(answer, unknown), "nodes": answer, "unknown": unknown}


def _own_gpus(context: Context, job: Job, shown_gpus: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the job's own GPUs are at, and why of some nodes they cannot be told from those of others."""
    number = job.raw_id or job.id.partition("+")[0]
    replies = context.transport.run(list(shown_gpus), allotted_command(number), timeout_s=LONGEST_S) if number.isdecimal() else {}
    requested = gpus_of(job) / max(1, len(job.nodes))
    own: dict[str, Any] = {}
    shared: dict[str, str] = {}
    for node, about in shown_gpus.items():
        reply = replies.get(node)
        text = reply.out if reply is not None and reply.reached and not reply.status else ""
        numbers = allotted_gpus(text, first=node == job.nodes[0])
        rows = [gpu for gpu in about["gpus"] if gpu["gpu"] in numbers] if numbers else about["gpus"]
        if rows and (numbers or not 0 < requested < len(rows)):
            own[node] = {**about, "gpus": rows}
        else:
            shared[node] = f"which of its {len(about['gpus'])} GPUs are the job's is not known"
    return own, shared


def _gpu_rows(gpus: list[Activity]) -> list[dict[str, Any]]:
    return [
        {
            "gpu": activity.gpu,
            "state": activity.state(),
            "sm": activity.sm,
            "memory": activity.memory,
            "power_w": activity.power_w,
            "pcie_mb_s": activity.pcie_mb_s,
        }
        for activity in gpus
    ]


def _why_not(reply: Reply, program: str) -> str:
    if not reply.reached:
        return reply.err or "it did not answer"
    if reply.status in NO_PROGRAM:
        return f"{program} is not there"
    if reply.status:
        return f"{program} ended with status {reply.status}: {(reply.err or reply.out).strip()[:200]}"
    return "" if activities(reply.out) else f"{program} printed nothing that can be read"


def _text(answer: dict[str, Any], unknown: dict[str, str]) -> str:
    states = Counter(gpu["state"] for node in answer.values() for gpu in node["gpus"])
    parts = [f"{count} of {states.total()} GPUs {state}" for state, count in states.most_common()]
    parts += [f"{node}: {why}" for node, why in list(unknown.items())[:4]]
    return ", ".join(parts) or "no GPU was seen"
