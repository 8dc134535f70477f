"""From a job that Slurm knows to the submission that repeats it, and from a `JobSpec` to the words of `sbatch`. Pure.

What the script's own `#SBATCH` lines ask for stays in the script. What the command line asked for is kept in `JobSpec.options`:
from the line as typed where accounting stores it, else from what the controller shows. A line in the script carries the
NIGHTSHIFT_* variables of the submission, because the controller shows nobody a job's environment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from assistant.errors import ToolError
from assistant.processes import RESOURCE_LIMIT, job_variables
from assistant.records import Job, JobSpec
from assistant.schedulers.slurm_jobs import nodes_of
from assistant.schedulers.slurm_text import pairs, seconds, value
from assistant.untrusted import parse_json

CARRIED = "#NIGHTSHIFT_ENVIRONMENT "
OWN_VARIABLE = "NIGHTSHIFT_"
VALUE_OPTIONS = frozenset("ABCDFGIJLMNSabcdeimnopqtwx")
"""Short options of sbatch that take a value."""
_PLAIN = (
    "contiguous get-user-env help hold ignore-pbs no-kill no-requeue overcommit oversubscribe parsable quiet reboot requeue share "
    "spread-job test-only usage use-min-nodes verbose version wait exclusive nice propagate kill-on-invalid-dep stepmgr"
)
PLAIN_OPTIONS = frozenset(_PLAIN.split())
"""Long options of sbatch that take no value, or one only behind `=`."""
_OURS = "J job-name N nodes D chdir o output p partition x exclude t time comment ntasks-per-node parsable"
OURS = frozenset(_OURS.split())
"""Options that `JobSpec` has a field for, or that we set."""
_ONE_TIME = (
    "a array d dependency b begin W wait test-only H hold uid gid wrap h help usage V version Q quiet v verbose deadline bb bbf "
    "export-file kill-on-invalid-dep"
)
ONE_TIME = frozenset(_ONE_TIME.split())
"""Options that made sense for the first submission only."""
A_YEAR_S = 365 * 86400
"""What 22.05 shows for no limit once it has placed the job."""
SHOWN = ("NumNodes", "NtasksPerN:B:S:C", "TimeLimit", "ExcNodeList", "ArrayTaskId", "HetJobId", "HetJobOffset", "BatchFlag")
SHOWN_OPTIONS = ("Account", "QOS", "Features", "Licenses", "Reservation", "Requeue", "OverSubscribe")
SHOWN_SIZES = ("CPUs/Task", "MinMemoryNode", "MinMemoryCPU", "TresPerNode", "TresPerJob", "TresPerTask", "TresPerSocket")


def shown_details(record: str, name: str) -> dict[str, str]:
    """Return what `scontrol show job -o` says about a job whose name is known, so that the name cannot speak for Slurm."""
    safe = record.replace(f"JobName={name} ", "JobName=? ", 1)
    return pairs(safe, (*SHOWN, *SHOWN_OPTIONS, *SHOWN_SIZES, "JobId"))


def job_spec(
    job: Job,
    details: Mapping[str, str],
    script: str,
    *,
    pattern: str,
    command: str,
    submit_line: str,
    environment: Mapping[str, str],
) -> JobSpec | None:
    """Return what submits a job again; None for a job that is no batch script of its own.

    Args:
        job: As squeue or sacct shows it.
        details: Of the controller; empty when it has forgotten the job.
        script: As it was submitted.
        pattern: Of its output, as given; empty when not known.
        command: Path and arguments of the script, as the controller shows them.
        submit_line: As typed, quotes lost; empty where accounting does not store it.
        environment: What is known of it besides our own variables.
    """
    if not script or "HetJobId" in details or "+" in job.id or details.get("BatchFlag", "1") == "0":
        return None
    plain, carried = without_carried(script)
    options, arguments = typed_options(submit_line, command)
    if not submit_line:
        options = shown_options(details)
    task, limit = job.id.partition("_")[2], seconds(details.get("TimeLimit", ""))
    nodes = details.get("NumNodes", "").partition("-")[0]
    ranks = details.get("NtasksPerN:B:S:C", "").partition(":")[0]
    return JobSpec(
        name=job.name,
        script=plain,
        nodes=int(nodes) if nodes.isdecimal() else max(1, len(job.nodes)),
        ranks_per_node=int(ranks) if ranks.isdecimal() and int(ranks) else 1,
        work_dir=job.work_dir or Path(),
        log=pattern or None,
        partition=job.partition,
        user=job.user,
        environment={**environment, **carried},
        exclude=nodes_of(details.get("ExcNodeList", "")) or nodes_of(_last(submit_line, "x", "exclude")),
        comment=job.comment,
        time_limit_s=limit if limit != A_YEAR_S else None,
        options=(*options, f"--array={task}") if task.isdecimal() else options,
        arguments=arguments,
    )


def with_carried(script: str, environment: Mapping[str, str]) -> str:
    """Return a script with a line that remembers our variables, behind its first line."""
    plain, _ = without_carried(script)
    own = {name: text for name, text in environment.items() if name.startswith(OWN_VARIABLE)}
    first, newline, rest = plain.partition("\n")
    if not first.startswith("#!"):
        first, newline, rest = "#!/bin/bash", "\n", plain  # sbatch refuses a script without
    return f"{first}{newline or chr(10)}{CARRIED}{json.dumps(own)}\n{rest}" if own else f"{first}{newline}{rest}"


def without_carried(script: str) -> tuple[str, dict[str, str]]:
    """Return a script without that line, and the variables; a line that somebody changed is ignored."""
    lines = script.splitlines(keepends=True)
    if len(lines) < 2 or not lines[1].startswith(CARRIED):
        return script, {}
    try:
        carried = parse_json(lines[1].removeprefix(CARRIED))
    except ValueError:
        carried = {}
    own = carried.items() if isinstance(carried, dict) else ()
    return "".join([lines[0], *lines[2:]]), {str(k): str(v) for k, v in own if str(k).startswith(OWN_VARIABLE)}


def typed_options(line: str, command: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the options worth keeping and the script's arguments, from a submission as typed.

    Slurm keeps the line with its quotes lost: a word that is neither an option nor the script belongs to the value before it.

    Args:
        line: `sbatch -N4 --mem=0 train.sh --lr 1e-4`.
        command: The script's path and arguments; empty when it came from standard input.
    """
    script, _, rest = command.partition(" ")
    arguments = tuple(rest.split())
    words = line.split()[1:]
    kept: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if script and not word.startswith("-") and Path(word).name == Path(script).name:
            break
        name, text, takes_next = _option(word)
        if takes_next and place < len(words):
            text, place = words[place], place + 1
        more = []
        while place < len(words) and not words[place].startswith("-") and not _is_script(words[place], script):
            more.append(words[place])
            place += 1
        if name and name not in OURS and name not in ONE_TIME:
            kept += _written(name, " ".join([text, *more]) if text or takes_next else None)
    return tuple(kept), arguments


def _is_script(word: str, script: str) -> bool:
    return bool(script) and Path(word).name == Path(script).name


def _option(word: str) -> tuple[str, str, bool]:
    """Return name and value of an option word, and whether its value is the next word."""
    if word.startswith("--"):
        name, equals, text = word[2:].partition("=")
        return name, text, not equals and name not in PLAIN_OPTIONS
    if word.startswith("-") and len(word) > 1:
        return word[1], word[2:].removeprefix("="), word[1] in VALUE_OPTIONS and len(word) == 2
    return "", "", False


def _written(name: str, text: str | None) -> list[str]:
    if len(name) == 1:
        return [f"-{name}{text or ''}"]
    return [f"--{name}" if text is None else f"--{name}={text}"]


def _last(line: str, short: str, long: str) -> str:
    """Return the last value of an option in a line as typed."""
    letter = f"-{short}[= ]?|" if short else ""
    found = re.findall(rf"\s(?:{letter}--{long}[= ])(\S+)", line)
    return found[-1] if found else ""


def output_pattern(line: str, script: str) -> str:
    """Return the pattern of a job's output as typed or as its script says; empty where neither does."""
    return option_pattern(line, script, "o", "output")


def option_pattern(line: str, script: str, short: str, long: str) -> str:
    """Return the last value of an option of sbatch as typed, else as the script says; empty where neither does.

    Args:
        line: As typed.
        script: With its `#SBATCH` lines.
        short: Letter of the option; empty where it has none.
        long: Its name.
    """
    typed = _last(line, short, long)
    directives = " ".join(f" {found}" for found in re.findall(r"^#SBATCH\s+(.*)$", script, re.MULTILINE))
    return typed or _last(directives, short, long).strip("\"'")


def shown_options(details: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options that ask for what the controller says a job had."""
    options = []
    names = {"Account": "account", "QOS": "qos", "Features": "constraint", "Licenses": "licenses", "Reservation": "reservation"}
    for key, name in names.items():
        if value(details.get(key, "")):
            options.append(f"--{name}={details[key]}")
    options += {"0": ["--no-requeue"], "1": ["--requeue"]}.get(details.get("Requeue", ""), [])
    options += ["--exclusive"] if details.get("OverSubscribe") == "NO" else []
    sizes = {
        "CPUs/Task": "cpus-per-task",
        "MinMemoryNode": "mem",
        "MinMemoryCPU": "mem-per-cpu",
    }
    options += [f"--{name}={details[key]}" for key, name in sizes.items() if value(details.get(key, "")) and details[key] != "1"]
    tres = {"TresPerNode": "node", "TresPerJob": "", "TresPerTask": "task", "TresPerSocket": "socket"}
    for key, what in tres.items():
        options += _gres(details.get(key, ""), what)
    return tuple(options)


def _gres(text: str, per: str) -> list[str]:
    """Return options for `gres:gpu:a100:8` of 22.05 or `gres/gpu:a100=8` of newer versions."""
    found = []
    for part in value(text).split(","):
        match = re.fullmatch(r"gres[:/](\w+)(?:[:/=](.+))?", part)
        if match is None:
            continue
        kind, size = match.group(1), (match.group(2) or "1").replace("=", ":")
        if per == "node":
            found.append(f"--gres={kind}:{size}")
        elif kind == "gpu":
            found.append(f"--gpus{f'-per-{per}' if per else ''}={size}")
    return found


def sbatch_words(spec: JobSpec, extra: Sequence[str] = (), *, by_name: bool = True, names: Sequence[str] = ("*",)) -> list[str]:
    """Return the words for `sbatch`, without the script and its arguments.

    Args:
        spec: What to submit.
        extra: The site's own options.
        by_name: Whether sbatch reads the job's environment as data; else the variables are written out.
        names: Globs of the variables that a site hands on.

    Raises:
        ToolError: A value cannot be written out.
    """
    words = ["--parsable", *extra, *_nodelist_kept(spec), f"--job-name={spec.name}", f"--nodes={spec.nodes}"]
    words += [f"--ntasks-per-node={spec.ranks_per_node}"] if spec.ranks_per_node > 1 else []
    words += [f"--chdir={spec.work_dir}"] if str(spec.work_dir) != "." else []
    words += [f"--output={spec.log}"] if spec.log else []
    words += [f"--partition={spec.partition}"] if spec.partition else []
    words += [f"--exclude={','.join(spec.exclude)}"] if spec.exclude else []
    words += [f"--comment={' '.join(spec.comment.split())}"] if spec.comment else []
    words += [f"--time={-(-spec.time_limit_s // 60)}"] if spec.time_limit_s else []
    words += ["--hold"] if spec.hold else []
    return words + _export(spec, names, by_name=by_name)


def _nodelist_kept(spec: JobSpec) -> list[str]:
    """Return the kept options without a list of wanted nodes that holds one to stay away from."""
    kept = []
    for word in spec.options:
        if word.startswith("--export="):
            continue
        wanted = re.match(r"(?:-w|--nodelist=)(.*)", word)
        if wanted is None or not set(nodes_of(wanted.group(1))) & set(spec.exclude):
            kept.append(word)
    return kept


def exported(spec: JobSpec, base: Mapping[str, str], names: Sequence[str] = ("*",)) -> dict[str, str]:
    """Return the whole environment of a job, as its `--export` asks for it: everything, named variables, or nothing but ours.

    Args:
        spec: The job; of its environment only what `handed_on` lets through.
        base: What it has besides, where it exports everything.
        names: Globs of the names that a site hands on.
    """
    known = handed_on(spec.environment, names)
    own = {name: text for name, text in known.items() if name.startswith(OWN_VARIABLE)}
    chosen = {name: text for name, text in known.items() if RESOURCE_LIMIT.fullmatch(f"{name}={text}")}
    for item in _export_list(spec):
        name, equals, text = item.partition("=")
        if item == "ALL":
            chosen |= {**base, **known}
        elif equals:
            chosen |= handed_on({name: text}, names)
        elif name in known:
            chosen[name] = known[name]
    # sbatch itself adds it to any environment but one from a file, and Slurm takes it for the %x of the output's path
    return {**chosen, **own, "SLURM_JOB_NAME": spec.name}


def handed_on(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return what of a job's environment it gets again: what `processes.job_variables` lets through and the site's globs name."""
    known = job_variables(environment)
    named = {name for name in known if name.startswith(OWN_VARIABLE) or any(fnmatchcase(name, glob) for glob in names)}
    return {name: text for name, text in known.items() if name in named or RESOURCE_LIMIT.fullmatch(f"{name}={text}")}


def _export_list(spec: JobSpec) -> list[str]:
    """Return what a job's own --export names, the option as typed before the script's line; `ALL` where it has none."""
    asked = [line for line in spec.script.splitlines() if line.startswith("#SBATCH")] + list(spec.options)
    values = [match.group(1).strip("\"'") for line in asked if (match := re.search(r"--export[= ](\S+)", line))]
    return [name for name in (values[-1] if values else "ALL").split(",") if name and not name.startswith(OWN_VARIABLE)]


def _export(spec: JobSpec, names: Sequence[str], *, by_name: bool) -> list[str]:
    """Return the options that decide what the job has in its environment.

    With `--export-file` Slurm takes the file for the whole environment, unless the script says otherwise: so `ALL` overrides the
    script, and where a job exports less than everything, its user's login environment is asked for, as Slurm itself does.
    """
    before = _export_list(spec)
    if by_name:
        return ["--export=ALL", *(["--get-user-env"] if not {"ALL", "NIL"} & set(before) else [])]
    before = [item for item in before if "=" not in item or handed_on(dict([item.split("=", 1)]), names)]
    own = {name: text for name, text in handed_on(spec.environment, names).items() if not name.startswith("SLURM_")}
    if not own:
        return [f"--export={','.join(before)}"] if before != ["ALL"] and before else []
    bad = next((name for name, text in own.items() if re.search(r"[,\n'\"]", text)), None)
    if bad is not None:
        raise ToolError(f"{bad} holds a comma or quote, so slurm.submit_as cannot hand it on; run Nightshift as {spec.user}")
    listed = [f"{name}={text}" for name, text in own.items()]
    return [f"--export={','.join([*(name for name in before if name not in ('NONE', 'NIL')), *listed])}"]
