"""Make "hold less" concrete: which options of the command that was ended say how much it holds, and how often that was ended.

A shell quotes the command that a signal ended, with its options; a launcher before it says how many processes and how much memory
were asked for. A variable of the script stands there as it is written, `${BATCH_SIZE}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from assistant.diagnose.advice.shown_beside import command_ended
from assistant.diagnose.facts import Facts
from assistant.logs.lines import Line
from assistant.records import Citation, Diagnosis

LINES_BEFORE, MOST_OF_LINE, MOST_OPTIONS = 60, 800, 3
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
_MEMORY = re.compile(
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
    holders, processes, memory = (_options(pattern, commands) for pattern in (_HOLDS, _PROCESSES, _MEMORY))
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
    yield from filter(None, (command_ended(each.text) for each in cited_lines[:MOST_OPTIONS]))
    for line in reversed(facts.between(max(1, facts.progress.leg, cited.line - LINES_BEFORE), cited.line - 1)):
        if _COMMAND.match(text := facts.streams.body(line.text[:MOST_OF_LINE]).text):
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
        ended = command_ended(line.text[:MOST_OF_LINE]) if ": line " in line.text[:MOST_OF_LINE] else ""
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
