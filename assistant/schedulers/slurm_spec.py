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
from assistant.schedulers.slurm_typed import NEW_ARGUMENTS, TypedSubmission, read_line
from assistant.untrusted import parse_json

CARRIED = "#NIGHTSHIFT_ENVIRONMENT "
OWN_VARIABLE = "NIGHTSHIFT_"
RUN_VARIABLES = re.compile(r" \$\{NIGHTSHIFT_ARGS:-\}")
"""What a restart adds to the launch command of a script (`recover/restart.py`)."""
A_YEAR_S = 365 * 86400
"""What 22.05 shows for no limit once it has placed the job."""
SHOWN_FIELDS = (
    "NumNodes", "NtasksPerN:B:S:C", "TimeLimit", "ExcNodeList", "ArrayTaskId", "HetJobId", "HetJobOffset", "BatchFlag", "NumTasks",
    "ReqNodeList", "AllocNode:Sid",
)  # fmt: skip
SHOWN_OPTIONS = ("Account", "QOS", "Features", "Licenses", "Reservation", "Requeue", "OverSubscribe")
SHOWN_SIZES = ("CPUs/Task", "MinMemoryNode", "MinMemoryCPU", "TresPerNode", "TresPerJob", "TresPerTask", "TresPerSocket")
WAITING = re.compile(r"\s+(?:-W|--wait)(?=\s|$)")
NODE_LIST = re.compile(r"(?<=\s)(?:-w\s*|--nodelist(?:=|[ \t]+))(?P<nodes>[^\s#]+)[ \t]*")


def shown_details(record: str, name: str, *, command: str = "", comment: str = "") -> dict[str, str]:
    """Return what `scontrol show job -o` says about a job, with nothing that its user wrote taken for Slurm's words.

    Args:
        record: The line.
        name: Of the job.
        command: Path and arguments of its script as shown.
        comment: Of the job.
    """
    safe = record.replace(f"JobName={name} ", "JobName=? ", 1)
    for key, text in (("Command", command), ("Comment", comment)):
        safe = safe.replace(f" {key}={text} ", f" {key}=? ", 1) if text else safe
    return pairs(safe, (*SHOWN_FIELDS, *SHOWN_OPTIONS, *SHOWN_SIZES, "JobId"))


def typed_submission(job: Job, script: str, line: str, *, command: str | None, environment: Mapping[str, str]) -> TypedSubmission:
    """Return what is known of the line by which a job was submitted.

    Args:
        job: As squeue or sacct shows it.
        script: As it was submitted.
        line: As typed, quotes lost; empty where the accounting does not store it.
        command: Path and arguments of the script, as the controller shows them; None where it has forgotten them.
        environment: Of the submission, as far as known.
    """
    fields = {"job-name": job.name, "comment": job.comment, "chdir": str(job.work_dir or "")}
    plain, carried = without_carried(script)
    own = {name: text for name, text in carried.items() if name == NEW_ARGUMENTS}
    fields |= {f"export {name}": text for name, text in {**environment, **own}.items()}
    return read_line(line, command=command, script=plain, fields=fields)


def job_spec(
    job: Job,
    details: Mapping[str, str],
    script: str,
    *,
    pattern: str,
    typed: TypedSubmission,
    environment: Mapping[str, str],
    environment_stored: bool = True,
) -> JobSpec | None:
    """Return what submits a job again; None for a job that is no batch script of its own.

    Args:
        job: As squeue or sacct shows it.
        details: Of the controller; empty when it has forgotten the job.
        script: As it was submitted.
        pattern: Of its output, as given; empty when not known.
        typed: The line of its submission, from `typed_submission`.
        environment: What is known of it besides our own variables.
        environment_stored: Whether the accounting keeps environments at all: of a job that has just ended it may come later.
    """
    if not script or details.get("BatchFlag", "1") == "0":
        return None
    plain, carried = without_carried(script)
    task, limit = job.id.partition("_")[2], seconds(details.get("TimeLimit", ""))
    nodes = details.get("NumNodes", "").partition("-")[0]
    ranks = details.get("NtasksPerN:B:S:C", "").partition(":")[0]
    options = typed.options if typed.options is not None else shown_options(details)
    is_environment_lost = not environment and not environment_stored and not _exports_nothing(plain, options)
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
        exclude=nodes_of(details.get("ExcNodeList", "")) or nodes_of(typed.values.get("exclude", "")),
        comment=job.comment,
        time_limit_s=limit if limit != A_YEAR_S else None,
        options=(*options, f"--array={task}") if task.isdecimal() else options,
        arguments=typed.arguments,
        doubt=_doubt(job, details, plain) or typed.doubt or (environment_doubt(plain) if is_environment_lost else ""),
        environment_lost=is_environment_lost,
    )


def _doubt(job: Job, details: Mapping[str, str], script: str) -> str:
    """Return why a job cannot be rebuilt, whatever is known of its line; empty where that does not stand against it."""
    task = job.id.partition("_")[2].isdecimal()
    return repeat_doubt(script, heterogeneous="HetJobId" in details or "+" in job.id, array=task)


def _exports_nothing(script: str, options: Sequence[str]) -> bool:
    """Tell whether a job was given no variable of the shell that submitted it, but those whose values its `--export` names."""
    items = exported_items(script, options)
    return bool(items) and all(item in ("NONE", "NIL") or "=" in item for item in items)


def environment_doubt(script: str) -> str:
    """Return which variables a script takes from the shell of its submission, of which Slurm kept nothing; empty for none.

    `LR=3e-4 sbatch train.sh` with `${LR:-1e-3}` in the script would come back with another learning rate.
    """
    if re.search(r"^#SBATCH\s+--export[= ](?:NONE|NIL)\b", script, re.MULTILINE):
        return ""
    code = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))
    code = re.sub(r"'[^'\n]{0,2000}'", "''", code)
    assigned = set(re.findall(r"(?:^|[\s;&|(])(?:export |local |declare (?:-\w+ )?|readonly )?([A-Za-z_]\w*)\+?=", code))
    assigned |= set(re.findall(r"\b(?:for|select|read(?: -\w+)*|mapfile -t|getopts \S+) ([A-Za-z_]\w*)", code))
    assigned -= set(re.findall(r"\b([A-Za-z_]\w*)=[\"']?\$\{\1:?[-=]", code))  # `LR=${LR:-1e-3}`
    read = re.findall(r"\$(?:\{([A-Za-z_]\w*)|([A-Za-z_]\w*))", code)
    names = dict.fromkeys(name for pair in read for name in pair if name and name not in assigned and not OF_SYSTEM.fullmatch(name))
    if not names:
        return ""
    listed = ", ".join(list(names)[:4])
    return f"its script takes {listed} from the shell of its submission, which Slurm keeps only with AccountingStoreFlags=job_env"


OF_SYSTEM = re.compile(
    r"(?:SLURM|SBATCH|SRUN|NIGHTSHIFT|BASH|PMIX?|OMPI|CONDA|LMOD|MODULE|XDG|CUDA|NCCL|ROCR?|HIP|GPU)_\w+|BASH\w*|_"
    r"|HOME|USER|LOGNAME|PATH|PWD|OLDPWD|SHELL|TMPDIR|TMP|TEMP|HOSTNAME|HOST|UID|EUID|PPID|RANDOM|SECONDS|LINENO|IFS|OPTARG|OPTIND|REPLY"
    r"|LANG|LC_\w+|TERM|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|VIRTUAL_ENV|MODULEPATH|MODULESHOME|MANPATH|DISPLAY|OMP_NUM_THREADS|SCRATCH|WORK"
)
"""Variables that Slurm, the shell or the login set, for each job alike."""


def repeat_doubt(script: str, *, heterogeneous: bool, array: bool) -> str:
    """Return why a job with this script cannot be submitted again as it was; empty where that does not stand against it.

    Args:
        script: Without the line of `with_carried`.
        heterogeneous: Whether the job has parts.
        array: Whether it is a task of an array.
    """
    if heterogeneous:
        return "it is a heterogeneous job, of whose parts Slurm does not keep which option was whose: they start only together"
    of_array = re.search(r"SLURM_ARRAY_(?:TASK_(?:COUNT|MIN|MAX|STEP)|JOB_ID)\b", script)
    if of_array and array:
        return f"its script uses {of_array.group()}, which one task of an array that is submitted alone does not get as before"
    return ""


def with_carried(script: str, environment: Mapping[str, str]) -> str:
    """Return a script with a line that remembers our variables, behind its first line."""
    plain, _ = without_carried(script)
    own = {name: text for name, text in environment.items() if name.startswith(OWN_VARIABLE)}
    first, newline, body = plain.partition("\n")
    if not first.startswith("#!"):
        first, newline, body = "#!/bin/bash", "\n", plain  # sbatch refuses a script without
    return f"{first}{newline or chr(10)}{CARRIED}{json.dumps(own)}\n{body}" if own else f"{first}{newline}{body}"


def without_waiting(script: str) -> str:
    """Return a script whose `#SBATCH` lines do not make sbatch wait for the end of the job, which here is still held."""
    lines = script.splitlines(keepends=True)
    return "".join(WAITING.sub("", line) if line.startswith("#SBATCH") else line for line in lines)


def without_lost_nodes(script: str, exclude: Sequence[str]) -> str:
    """Return a script whose `#SBATCH` lines want no node that is to be stayed away from: sbatch refuses both together."""
    left_out = {*exclude}

    def without_excluded(match: re.Match[str]) -> str:
        return "" if {*nodes_of(match["nodes"].strip("'\""))} & left_out else match.group()

    lines = script.splitlines(keepends=True) if left_out else [script]
    return "".join(NODE_LIST.sub(without_excluded, line) if line.startswith("#SBATCH") else line for line in lines)


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


def output_pattern(typed: TypedSubmission, script: str) -> str:
    """Return the pattern of a job's output as typed or as its script says; empty where neither does."""
    return option_pattern(typed, script, "o", "output")


def option_pattern(typed: TypedSubmission, script: str, short: str, long: str) -> str:
    """Return the last value of an option of sbatch as typed, else as the script says; empty where neither does.

    Args:
        typed: The submission.
        script: With its `#SBATCH` lines.
        short: Letter of the option; empty where it has none.
        long: Its name.
    """
    directives = " ".join(f" {words}" for words in re.findall(r"^#SBATCH\s+(.*)$", script, re.MULTILINE))
    letter = f"-{short}[= ]?|" if short else ""
    values = re.findall(rf"\s(?:{letter}--{long}[= ])(\S+)", directives)
    return typed.values.get(long, "") or (values[-1].strip("\"'") if values else "")


def shown_options(details: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options that ask for what the controller says a job had."""
    options = []
    names = {"Account": "account", "QOS": "qos", "Features": "constraint", "Licenses": "licenses", "Reservation": "reservation"}
    for key, name in names.items():
        if value(details.get(key, "")):
            options.append(f"--{name}={details[key]}")
    options += {"0": ["--no-requeue"], "1": ["--requeue"]}.get(details.get("Requeue", ""), [])
    options += ["--exclusive"] if details.get("OverSubscribe") == "NO" else []
    options += [f"--nodelist={details['ReqNodeList']}"] if value(details.get("ReqNodeList", "")) else []
    tasks, per_node = details.get("NumTasks", ""), details.get("NtasksPerN:B:S:C", "").partition(":")[0]
    options += [f"--ntasks={tasks}"] if tasks.isdecimal() and per_node in ("", "0") and tasks != details.get("NumNodes") else []
    sizes = {
        "CPUs/Task": "cpus-per-task",
        "MinMemoryNode": "mem",
        "MinMemoryCPU": "mem-per-cpu",
    }
    options += [f"--{name}={details[key]}" for key, name in sizes.items() if value(details.get(key, "")) and details[key] != "1"]
    tres = {"TresPerNode": "node", "TresPerJob": "", "TresPerTask": "task", "TresPerSocket": "socket"}
    for key, unit in tres.items():
        options += _gres(details.get(key, ""), unit)
    return tuple(options)


def _gres(text: str, per: str) -> list[str]:
    """Return options for `gres:gpu:a100:8` of 22.05 or `gres/gpu:a100=8` of newer versions."""
    options = []
    for part in value(text).split(","):
        match = re.fullmatch(r"gres[:/](\w+)(?:[:/=](.+))?", part)
        if match is None:
            continue
        kind, size = match.group(1), (match.group(2) or "1").replace("=", ":")
        if per == "node":
            options.append(f"--gres={kind}:{size}")
        elif kind == "gpu":
            options.append(f"--gpus{f'-per-{per}' if per else ''}={size}")
    return options


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
    options = []
    for word in spec.options:
        if word.startswith("--export="):
            continue
        match = re.match(r"(?:-w|--nodelist=)(.*)", word)
        if match is None or not set(nodes_of(match.group(1))) & set(spec.exclude):
            options.append(word)
    return options


def exported(spec: JobSpec, base: Mapping[str, str], names: Sequence[str] = ("*",)) -> dict[str, str]:
    """Return the whole environment of a job, as its `--export` asks for it: everything, named variables, or nothing but ours.

    Args:
        spec: The job; of its environment only what `handed_on` lets through.
        base: What it has besides, where it exports everything.
        names: Globs of the names that a site hands on.
    """
    variables = handed_on(spec.environment, names)
    own = {name: text for name, text in variables.items() if name.startswith(OWN_VARIABLE)}
    exported_variables = {name: text for name, text in variables.items() if RESOURCE_LIMIT.fullmatch(f"{name}={text}")}
    for item in _export_list(spec):
        name, equals, text = item.partition("=")
        if item == "ALL":
            exported_variables |= {**base, **variables}
        elif equals:
            exported_variables |= handed_on({name: text}, names)
        elif name in variables:
            exported_variables[name] = variables[name]
    # sbatch itself adds it to any environment but one from a file, and Slurm takes it for the %x of the output's path
    return {**exported_variables, **own, "SLURM_JOB_NAME": spec.name}


def handed_on(environment: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return what of a job's environment it gets again: what `processes.job_variables` lets through and the site's globs name."""
    variables = job_variables(environment)
    passed_names = {name for name in variables if name.startswith(OWN_VARIABLE) or any(fnmatchcase(name, glob) for glob in names)}
    return {name: text for name, text in variables.items() if name in passed_names or RESOURCE_LIMIT.fullmatch(f"{name}={text}")}


def _export_list(spec: JobSpec) -> list[str]:
    """Return what a job's own --export names, the option as typed before the script's line; `ALL` where it has none."""
    return [name for name in exported_items(spec.script, spec.options) or ["ALL"] if not name.startswith(OWN_VARIABLE)]


def exports_plainly(spec: JobSpec, name: str) -> bool:
    """Tell whether a job is given a variable of its submission's environment, which no `--export` sets to a value of its own."""
    items = exported_items(spec.script, spec.options)
    return (not items or "ALL" in items or name in items) and not any(item.startswith(f"{name}=") for item in items)


def exported_items(script: str, options: Sequence[str]) -> list[str]:
    """Return the items of the `--export` that counts; none where nobody gave one."""
    lines = [line for line in script.splitlines() if line.startswith("#SBATCH")] + list(options)
    values = [match.group(1).strip("\"'") for line in lines if (match := re.search(r"--export[= ](\S+)", line))]
    return [name for name in values[-1].split(",") if name] if values else []


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
