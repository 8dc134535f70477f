"""Name the task that a job is a run of, so that what was learned of earlier runs is found again."""

from __future__ import annotations

import re
from collections.abc import Iterable

from assistant.records import Job

_FRAMEWORKS = (
    ("internevo", re.compile(r"\binternlm\b|\binternevo\b|tgs \(tokens/gpu/second\)", re.IGNORECASE)),
    ("neox", re.compile(r"\bneox\b|samples/sec: [\d.]+ \| iteration", re.IGNORECASE)),
    ("megatron", re.compile(r"\bmegatron\b|pretrain_gpt|using world size: \d+, data-parallel", re.IGNORECASE)),
    ("deepspeed", re.compile(r"\[deepspeed\]|deepspeed[._/]|ds_accelerator|DeepSpeed")),
    ("nemo", re.compile(r"\[NeMo [IWED] |\bnemo\.")),
    ("torchtitan", re.compile(r"torchtitan", re.IGNORECASE)),
    ("fairseq", re.compile(r"\bfairseq|\bmetaseq")),
    ("lightning", re.compile(r"pytorch_lightning|lightning\.(?:pytorch|fabric)|GPU available: \w+")),
    ("transformers", re.compile(r"transformers[./]trainer|transformers\.|\[INFO\|trainer\.py|'loss': [\d.]+")),
    ("tensorflow", re.compile(r"\btensorflow\b|\bkeras\b")),
    ("jax", re.compile(r"\bjax\b|\bmaxtext\b")),
)
_SCRIPT = re.compile(r"(?:^|[\s/=\"'])([\w-]+\.(?:py|sh))\b|\bpython3? (?:-\w+ )*-m ([\w.]+)")
_LAUNCHERS = frozenset({"activate.sh", "setup.sh", "env.sh", "launch.py", "run.py", "launcher.py", "api.py", "distributed_c10d.py"})
_RUN = re.compile(
    r"(?:^|[-_.+ ])(?:(?:run|try|trial|attempt|exp|restart|resumed?|retry|rerun|cont(?:inue)?|seed|job|id|r|v|t|s)[-_.]?\d+"
    r"|resumed?|retry|rerun|restart(?:ed)?|\d{1,14}(?:[-_T:]\d{2,8})*|[0-9a-f]{7,40})(?=$|[-_.+ ])",
    re.IGNORECASE,
)
_HEAD = 400
"""Lines from the start of a log that tell what runs."""


def task_key(job: Job | None, lines: Iterable[str] = ()) -> str:
    """Return the key of the task: user, name without run numbers, framework, script, joined by `/`; unknown ones are `-`.

    `llama-70b_run12` and `llama-70b-run13` are one name; sizes (`70b`, `8x7b`) stay.

    Args:
        job: As the scheduler shows it; None where only a log is at hand.
        lines: Of its log, from the start; the first 400 are looked at.
    """
    head = [line for line, _ in zip(lines, range(_HEAD), strict=False)]
    user = job.user if job is not None else ""
    name = steady_name(job.name) if job is not None else ""
    script = job.spec.script if job is not None and job.spec is not None else ""
    parts = (user, name, _framework([script, *head]), _command(script.splitlines()) or _command(head))
    return "/".join(re.sub(r"[\s/]+", "_", part) or "-" for part in parts)


def steady_name(name: str) -> str:
    """Return a job's name without what changes from run to run: dates, counters, hashes."""
    before, text = "", name.strip().removesuffix(".sh").removesuffix(".sbatch")
    while text != before:  # what is left may end in another counter
        before, text = text, _RUN.sub("", text)
    return text.strip("-_.+ ").lower() or re.sub(r"\d+", "", name).strip("-_.+ ").lower()


def _framework(lines: Iterable[str]) -> str:
    count: dict[str, int] = {}
    for line in lines:
        for name, pattern in _FRAMEWORKS:
            if pattern.search(line):
                count[name] = count.get(name, 0) + 1
                break
    return max(count, key=lambda name: count[name], default="")


def _command(lines: Iterable[str]) -> str:
    """Return the script or module that is run: the last one named that is no launcher's own."""
    program = ""
    for line in lines:
        if line.startswith("#") or ("python" not in line and "srun" not in line and "torchrun" not in line and "bash" not in line):
            continue
        for script, module in _SCRIPT.findall(line):
            word = script or module
            if word not in _LAUNCHERS and not word.startswith(("torch.", "accelerate")):
                program = word
    return program.lower()
