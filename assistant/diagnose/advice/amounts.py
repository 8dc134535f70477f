"""Say how much to change of what a log prints: half a batch, a third more memory, fewer processes of the command that was ended.

A number is a proposal for the next start and not what the job needs: that stands in no log. A shell quotes the command that a
signal ended, with its options; a launcher before it says how many processes and how much memory were asked for. A variable of the
script stands there as it is written, `${BATCH_SIZE}`. Of a server that slept and did not get its memory back: which memory that
was, and who may have taken it meanwhile.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from assistant.diagnose.advice.shown_beside import command_ended
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import Setting, named_setting
from assistant.logs.lines import Line
from assistant.records import Citation, Diagnosis

MOST_LINES, MOST_OF_LINE = 2000, 400
MORE = 4 / 3
"""Times the memory of a job that reached its limit."""
SMALL_GIB, FEW_GIB, MANY_GIB = 32, 4, 16
"""Memory below which it is asked for in steps of the second number, and above which in steps of the third."""
_MEMORY = re.compile(
    r"(?P<option>--mem(?:-per-cpu|-per-gpu)?)[= ](?P<value>\d{1,7})(?P<unit>[KMGT]?)B?\b"
    r"|(?P<pbs>\bp?v?mem)=(?P<pbs_value>\d{1,7})(?P<pbs_unit>[kmgtKMGT])b?\b",
)
_GIB = {"K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0, "": 1 / 1024}
"""Slurm counts memory without a unit in MiB."""
_OOM = re.compile(r"Detected \d{1,6} oom[-_]kill event|have been OOM Killed|\bOut of memory: Kill|\boom-kill:|\bOOMKilled\b")
_AT_START = re.compile(
    r"Free memory on device (\S{1,20} )?\(([\d.]{1,8})/([\d.]{1,8}) GiB\) on startup is less than desired GPU memory utilization "
    r"\(([\d.]{1,6})"
)
_SIZE = re.compile(r"(\d[\d.]{0,17}) ?([KMGT])i?[Bb]?", re.IGNORECASE)


def oom_record(facts: Facts) -> str:
    """Return where the log of the last attempt records a kill for want of memory, as `job.log:9`; empty where it does not."""
    lines = (line for line in facts.lines if line.number >= facts.progress.leg)
    record = next((line for line in lines if _OOM.search(line.text[:MOST_OF_LINE])), None)
    return f"job.log:{record.number}" if record is not None else ""


def lowered(value: Setting) -> str:
    """Return a setting with half of its value behind it, as `batch_size 32 (job.log:4) to 16`."""
    return f"{value} to {max(1, int(value.value) // 2)}" if value.value.isdigit() and int(value.value) > 1 else str(value)


def memory_to_ask_for(facts: Facts, limit: str = "") -> str:
    """Return how much host memory to ask for, beside what was asked for; empty where neither script nor message tell a limit.

    Args:
        facts: Of the case.
        limit: What a message says that the limit was, such as `46105.0 MB`.
    """
    for line in facts.lines[:MOST_LINES]:
        match = _MEMORY.search(line.text[:MOST_OF_LINE]) if "mem" in line.text[:MOST_OF_LINE] else None
        if match is None or int(match["value"] or match["pbs_value"]) == 0:
            continue
        if match["option"]:
            value, unit = match["value"], match["unit"]
            more = _more(int(value) * _GIB[unit])
            return f"{match['option']}={more}G in place of {value}{unit} (job.log:{line.number})"
        more = _more(int(match["pbs_value"]) * _GIB[match["pbs_unit"].upper()])
        return f"{match['pbs']}={more}gb in place of {match['pbs_value']}{match['pbs_unit']}b (job.log:{line.number})"
    size = _SIZE.fullmatch(limit.strip())
    return f"{_more(float(size[1]) * _GIB[size[2].upper()])}G in place of {limit.strip()}" if size is not None else ""


def taken_at_start(text: str, facts: Facts) -> str:
    """Return how much of each GPU others held as a server started, and the share that fits all; empty of another message."""
    if not _AT_START.search(text[: 2 * MOST_OF_LINE]):
        return ""
    lines = (line.text for line in facts.lines if line.number >= facts.progress.leg)
    texts = [line for line in lines if "Free memory on" in line[:MOST_OF_LINE]]
    matches = [match for message in (text, *texts) if (match := _AT_START.search(message[: 2 * MOST_OF_LINE])) is not None]
    starts = {(match[1] or "The GPU").strip(): (float(match[2]), float(match[3]), match[4]) for match in matches}
    device, (free, total, share) = min(starts.items(), key=lambda item: item[1][0] / (item[1][1] or 1.0))
    listed = f" ({', '.join(f'{name} {start[0]:g}' for name, start in sorted(starts.items()))} GiB)" if len(starts) > 1 else ""
    most = math.floor(free / total * 100) / 100 if total else 0.0
    condition = "the same on each of these GPUs" if len(starts) > 1 else "if the model still fits into that"
    return (
        f"{device} had {free:g} of {total:g} GiB free at the start, less than the share of {share} asks for{listed}: end what"
        f" else runs there (nvidia-smi), or set gpu_memory_utilization to at most {most:.2f}, {condition}."
    )


def _more(gib: float) -> int:
    """Return a third more, in steps that people ask for."""
    step = FEW_GIB if gib * MORE < SMALL_GIB else MANY_GIB
    return math.ceil(gib * MORE / step) * step


LINES_AROUND, LINES_BEFORE_RETURN = 12, 400
"""Lines around the cited one in which the return is told of, lines before it in which the sleep is."""
_RETURN = re.compile(r"wake[_ ]?up|resume_memory_occupation|reload_weights|\bwaking up\b", re.IGNORECASE)
"""What servers call it when they take back the memory of a GPU that they had freed: vLLM, SGLang."""
_FREED = re.compile(r"(?:[Ss]leep (?:mode )?freed|[Rr]eleased?) (?P<freed>\d{1,5}(?:\.\d{1,3})?) ?Gi?B")
_RETURNED = re.compile(r"to wake up|woke up|POST /wake_up\S{0,40} HTTP/\d\S{0,4} 200", re.IGNORECASE)
_SHARE = ("gpu_memory_utilization", "mem_fraction_static")


def not_returned(cited: Citation, facts: Facts) -> str:
    """Return what to change where memory ran out as a server woke up from its sleep; empty of any other lack of memory."""
    if cited.file != "job.log":
        return ""
    lines = facts.between(max(1, cited.line - LINES_AROUND), cited.line + LINES_AROUND)
    returns = [line.number for line in lines if _RETURN.search(line.text[:MOST_OF_LINE])]
    wakes = max((number for number in returns if number <= cited.line), default=min(returns, default=0))
    before = facts.between(max(1, cited.line - LINES_BEFORE_RETURN), cited.line - 1)
    freed = next(((m["freed"], line.number) for line in reversed(before) if (m := _FREED.search(line.text[:MOST_OF_LINE]))), None)
    if not wakes or freed is None:
        return ""
    worked = any(_RETURNED.search(line.text[:MOST_OF_LINE]) for line in before if line.number < freed[1])
    earlier = ", as it had got it back at an earlier time" if worked else ""
    share = next((value for name in _SHARE if (value := named_setting(facts, name, cited.line)) is not None), None)
    lower = f"lower {share.name} {share.value} (job.log:{share.line})" if share is not None else f"lower its share ({_SHARE[0]})"
    return (
        f"The server woke up (job.log:{wakes}) and wanted the {freed[0]} GiB back that its sleep had freed "
        f"(job.log:{freed[1]}){earlier}: "
        "meanwhile something else took the GPU, mostly another model or process (nvidia-smi shows which). Put that to sleep "
        "or end it "
        f"before this one is woken, or {lower} of one of both; then start this server again."
    )


COMMAND_LINES_BEFORE, MOST_OF_COMMAND, MOST_OPTIONS = 60, 800, 3
FEWEST_KILLS = 2
_VALUE = r"(?:=|\s{1,3})(?P<value>\"?\$\{?\w{1,60}\}?\"?|\d{1,9}(?:\.\d{1,6})?[kKMGTgm]?[bB]?)(?![\w.])"
_HOLDS = re.compile(
    r"(?<![\w-])(?P<name>--?(?:(?:per[-_]device|per[-_]gpu|train|eval|valid|test|micro|global|mini|local)[-_]){0,3}"
    r"(?:batch[-_]?size|batch|bs|bsz|bsize|chunk[-_]?size|block[-_]?size|tile[-_]?size|buffer[-_]?size|cache[-_]?size"
    r"|max[-_](?:seq[-_])?(?:len(?:gth)?|tokens)|image[-_]?size|img[-_]?size|n[-_]?grid"
    r"|max[-_]num[-_]seqs))" + _VALUE,
    re.IGNORECASE,
)
_PROCESSES = re.compile(
    r"(?<![\w-])(?P<name>--?(?:np|nproc(?:[-_]per[-_]node)?|ntasks(?:-per-node)?|num[-_]proc(?:esses)?|processes|procs?"
    r"|(?:num[-_]?)?workers|num[-_]workers|n[-_]?jobs|jobs|(?:n|num)?[-_]?threads|cores)|-n(?= \d)|-j)" + _VALUE,
    re.IGNORECASE,
)
_MEMORY_OPTION = re.compile(
    r"(?<![\w-])(?P<name>--mem(?:-per-(?:cpu|gpu))?|-Xmx|--memory|--max[-_]memory|-M)"
    r"(?:=|\s{1,3})?(?P<value>\"?\$\{?\w{1,60}\}?\"?|\d{1,9}(?:\.\d{1,6})?[kKMGTgm]?[bB]?)(?![\w.])"
)
_COMMAND = re.compile(
    r"^(?:\++ |\$ |> )?(?:srun|mpirun|mpiexec|prun|torchrun|accelerate|python3?|java|Rscript|apptainer|singularity) "
)


def smaller_command(cited_lines: Sequence[Citation], facts: Facts) -> str:
    """Return what to change in the options of the command that a signal ended, `lower --batch_size 64`; empty where it has none.

    Args:
        cited_lines: Of the diagnosis, the most telling first.
        facts: Of the case.
    """
    commands = list(_commands(cited_lines, facts))
    holders, processes, memory = (_options(pattern, commands) for pattern in (_HOLDS, _PROCESSES, _MEMORY_OPTION))
    clauses = []
    if holders:
        clauses.append(f"lower {' or '.join(holders)}")
    if processes:
        clauses.append(f"start fewer at once ({', '.join(processes)})")
    if memory:
        clauses.append(f"raise {' and '.join(memory)}")
    return " or ".join(clauses)


def _options(pattern: re.Pattern[str], commands: Sequence[str]) -> list[str]:
    """Return the options of commands that fit, as they stand there, each once."""
    matches = (match for command in commands for match in pattern.finditer(command))
    return list(dict.fromkeys(" ".join(match[0].split()) for match in matches if match["value"] != "1"))[:MOST_OPTIONS]


def _commands(cited_lines: Sequence[Citation], facts: Facts) -> Iterator[str]:
    """Yield the commands that were ended, and the last one that the log shows before."""
    cited = next((cited for cited in cited_lines if cited.file == "job.log"), None)
    if cited is None:
        return
    yield from filter(None, (command_ended(citation.text) for citation in cited_lines[:MOST_OPTIONS]))
    for line in reversed(facts.between(max(1, facts.progress.leg, cited.line - COMMAND_LINES_BEFORE), cited.line - 1)):
        if _COMMAND.match(text := facts.streams.body(line.text[:MOST_OF_COMMAND]).text):
            yield text
            return


def killed_again(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return that the same command was ended the same way before in this log, by itself each time; empty where it was not.

    Processes that one signal ends together are one kill: something else has to be printed in between.
    """
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    command = command_ended(cited.text) if cited is not None and cited.file == "job.log" else ""
    if not command:
        return ""
    kills: list[Line] = []
    printed = True
    for line in facts.lines:
        ended = command_ended(line.text[:MOST_OF_COMMAND]) if ": line " in line.text[:MOST_OF_COMMAND] else ""
        if ended:
            if ended == command and printed:
                kills.append(line)
            printed = False
        elif line.text.strip():
            printed = True
    if len(kills) < FEWEST_KILLS:
        return ""
    places = ", ".join(f"job.log:{line.number}" for line in kills[:3])
    return (
        f"The same command was ended so {len(kills)} times in this log ({places}), so the same start meets it again: change "
        "what it holds, or what ends it, before the next one."
    )
