"""What `nvidia-smi -q -x` says about each GPU, in the words of drivers 450 to 580: a value by any of the names it has had."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from xml.etree import ElementTree

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._counters import Counter, counts_by, judge_counters

NVIDIA_SMI_COMMAND = ("nvidia-smi", "-q", "-x")
NVIDIA_PACKAGE = "the NVIDIA driver (nvidia-utils-<version>, on RHEL nvidia-driver-cuda)"
LOST = re.compile(r"GPU is lost|fallen off the bus|[Uu]nable to determine the device handle|requires reset", re.IGNORECASE)
ABSENT = {
    "",
    "n/a",
    "[n/a]",
    "not supported",
    "[not supported]",
    "unknown error",
    "[unknown error]",
    "err!",
    "none",
    "not available",
}

Judge = Callable[["Gpu", Circumstances], Iterable[Finding]]
Count = Callable[["Gpu", Circumstances], Iterable[Counter]]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU."""

    index: int
    model: str
    serial: str
    element: ElementTree.Element

    @property
    def name(self) -> str:
        """Say which one it is."""
        return f"GPU {self.index}"

    @property
    def identity(self) -> str:
        """Say which one it is for good, whatever the order of GPUs."""
        return self.text("uuid") or self.serial or self.element.get("id") or self.name

    def text(self, *paths: str) -> str:
        """Return the value of the first path that has one; empty when none has."""
        for path in paths:
            value = (self.element.findtext(path) or "").strip()
            if value.casefold() not in ABSENT:
                return value
        return ""

    def number(self, *paths: str) -> float | None:
        """Return the number at the beginning of such a value, its unit left out."""
        match = re.match(r"-?\d+(?:\.\d+)?", self.text(*paths))
        return float(match.group()) if match else None

    def total(self, *paths: str) -> float | None:
        """Return the sum over all paths that have a number; None when none has."""
        numbers = [number for path in paths if (number := self.number(path)) is not None]
        return sum(numbers) if numbers else None


def gpus(reply: Reply) -> list[Gpu] | None:
    """Return the GPUs of an answer, in the driver's order; None when it is no such answer."""
    return _parsed(reply.out)


@lru_cache(maxsize=2)
def _parsed(out: str) -> list[Gpu] | None:
    # several probes read the same answer one after the other
    start, end = out.find("<nvidia_smi_log"), out.rfind("</nvidia_smi_log>")
    if start < 0 or end < 0 or "<!ENTITY" in out:
        return None
    try:
        root = ElementTree.fromstring(re.sub(r"[^\x09\x0a\x0d\x20-\ud7ff\ue000-\ufffd]", "", out[start : end + 17]))
    except ElementTree.ParseError:
        return None
    return [
        Gpu(number, (element.findtext("product_name") or "").strip(), (element.findtext("serial") or "").strip(), element)
        for number, element in enumerate(root.findall("gpu"))
    ]


def gpu_probe(
    name: str,
    judge: Judge,
    source: str,
    good: str,
    counters: Count | None = None,
    summary: Callable[[Sequence[Gpu]], Finding | None] | None = None,
) -> Probe:
    """Return a probe that judges each GPU by itself.

    Args:
        name: Its name.
        judge: Gives what is wrong with a GPU; nothing when all is well. `{}` in a text stands for the names of the GPUs.
        source: Where its limits come from.
        good: What to say when all is well.
        counters: Gives the counters of a GPU that only ever grow.
        summary: Gives what to say of all GPUs when all is well, in place of `good`; None where they do not say it.
    """
    if counters is None:
        return smi_probe(name, partial(_judge_gpus, judge, good, summary=summary), source)
    return smi_probe(
        name, partial(_judge_gpus, judge, good, counters=counters), source, counts=counts_by(partial(_counters, counters))
    )


def smi_probe(name: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], source: str, **more: Any) -> Probe:
    """Return a probe that reads `nvidia-smi -q -x`."""
    return Probe(
        name=name,
        command=NVIDIA_SMI_COMMAND,
        needs="nvidia-smi",
        parse=parse,
        source=source,
        package=NVIDIA_PACKAGE,
        witness="nvml",
        reading="nvidia_smi",
        hardware="nvidia",
        **more,
    )


def _counters(counters: Count, reply: Reply, circumstances: Circumstances) -> Iterator[Counter]:
    for gpu in gpus(reply) or ():
        yield from counters(gpu, circumstances)


def _judge_gpus(
    judge: Judge,
    good: str,
    reply: Reply,
    circumstances: Circumstances,
    counters: Count | None = None,
    summary: Callable[[Sequence[Gpu]], Finding | None] | None = None,
) -> Sequence[Finding]:
    node_gpus = gpus(reply)
    if node_gpus is None:
        return [unknown("nvidia-smi -q -x printed no report that can be read")]
    if not node_gpus:
        return [unknown("nvidia-smi reports no GPU")]
    problems = [(gpu.name, finding) for gpu in node_gpus for finding in judge(gpu, circumstances)]
    all_counters = [counter for gpu in node_gpus for counter in counters(gpu, circumstances)] if counters else []
    problems += judge_counters(all_counters, circumstances)
    counters_note = f"; counters {circumstances.past.told}" if all_counters else ""
    if problems:
        return merged(problems)
    return [(summary(node_gpus) if summary else None) or ok(f"{good} ({len(node_gpus)} GPUs{counters_note})", len(node_gpus))]


def gpu_finding(
    status: Health,
    text: str,
    value: float | str | None,
    limit: float | str | None,
    unit: str,
    remedy: str,
    weight: Weight = Weight.COUNTS,
) -> Finding:
    """Return a finding of one GPU; `{}` in the text stands for its name."""
    return Finding(status, text, value, limit, unit, remedy, weight)
