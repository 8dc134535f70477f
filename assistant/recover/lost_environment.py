"""Which variables a job's programs take from the shell of its submission, where the scheduler kept none of them.

`LR=3e-4 sbatch train.sh` with `os.environ["LR"]` in the program would come back with another learning rate, or none. Sources,
configurations and the scripts that the batch script calls are read as far as they can be; what a log printed of a value is told and
never used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from assistant.records import Job
from assistant.recover.job_program import CONFIGS, FileReader, JobProgram, programs_of
from assistant.recover.joblog import log_lines
from assistant.recover.trainer_source import UNPARSED, TrainerSource, dotted, syntax_tree
from assistant.schedulers.slurm_spec import OF_SYSTEM, environment_doubt

__all__ = ["is_of_submitit", "lost_variables", "repeat_problem", "requeue_words", "variables_in_config", "variables_in_source"]

OF_LAUNCHERS = re.compile(
    r"(?:LOCAL_|NODE_|GROUP_|GLOBAL_)?RANK|(?:LOCAL_|GROUP_)?WORLD_SIZE|MASTER_(?:ADDR|PORT)|ROLE_\w+|TORCHELASTIC_\w+|MV2_\w+|MPI_\w+"
    r"|(?:TORCH|PYTORCH|ACCELERATE|DEEPSPEED|DS|HF|HUGGINGFACE|TRANSFORMERS|TOKENIZERS|DATASETS|WANDB|MLFLOW|COMET|CLEARML|NEPTUNE"
    r"|TRITON|XLA|JAX|TF|TPU|KMP|MKL|OMP|OPENBLAS|NUMEXPR|NUMBA|GLOO|NVIDIA|NVTE|UCX|FI|HYDRA|PYTHON|MPL|LIGHTNING|RAY)_\w+"
    r"|PYTHON\w*|COLUMNS|LINES|NO_COLOR|FORCE_COLOR|CI|EDITOR|SLURM\w*"
)
"""Variables that launchers set for each process, and switches of libraries that a run does not depend on."""
IN_CONFIG = re.compile(r"\$\{(?:oc\.env|oc\.decode:\$\{oc\.env|env):([A-Za-z_]\w{0,100})|\$\{?([A-Z][A-Z0-9_]{1,100})\b")
"""OmegaConf's `${oc.env:LR}`, and `${LR}` or `$LR` where a program expands them itself."""
BY_NAME = "variables whose names it makes itself"
MOST_NAMED = 4
_SUBMITIT = re.compile(r"(?:^|\s)submitit\.core\._submit(?:\s|$)", re.MULTILINE)
OF_SUBMITIT = "submitit looks for its call in a file that is named by the job's id, and a new job has another one"
"""Source: submitit 1.5, core/job_environment.py and core/utils.py: `JOBID_submitted.pkl`, `JOBID_TASK_submitted.pkl`."""
BY_REQUEUE = "it is a job of submitit, which runs again under its own id alone: scontrol requeue {job}"
PRINTED = r"(?i)(?<![\w.-]){name}[\"']?\s{{0,20}}[=:]\s{{0,3}}[\"']?([^\s\"',;)}}\]]{{1,60}})"


def repeat_problem(job: Job) -> str:
    """Return why a new submission would not be the same job, for people; empty where it would be, as far as that can be told.

    Raises:
        Unavailable: The storage with its sources did not answer.
    """
    if job.spec is None or job.spec.doubt:
        return job.spec.doubt if job.spec is not None else ""
    if is_of_submitit(job.spec.script):
        return OF_SUBMITIT
    return lost_variables(job) if job.spec.environment_lost else ""


def is_of_submitit(script: str) -> bool:
    """Tell whether a script runs a call that submitit has pickled under the id of its job."""
    return _SUBMITIT.search(script) is not None


def requeue_words(job: Job) -> str:
    """Return by which command alone a job of submitit is run again, for people; empty of any other."""
    return BY_REQUEUE.format(job=job.id) if job.spec is not None and is_of_submitit(job.spec.script) else ""


def lost_variables(job: Job) -> str:
    """Return which variables of the shell of its submission a job's programs and configurations read; empty for none."""
    if job.spec is None:
        return ""
    reader = FileReader(job.account)
    programs = programs_of(job, reader)
    scripts = [text for path, text in reader.texts.items() if text and PurePosixPath(path).suffix in (".sh", ".bash")]
    doubt = environment_doubt("\n".join([job.spec.script, *scripts])) if scripts else ""
    if doubt:
        return doubt
    places: dict[str, str] = {}
    for program in programs:
        for name, place in _read_by(program):
            places.setdefault(name, place)
    made = {name for program in programs for name in program.launch.variables}
    for path, text in reader.texts.items():
        if text and PurePosixPath(path).suffix in CONFIGS:
            places |= {
                name: PurePosixPath(path).name
                for name in variables_in_config(text)
                if name not in made and not _is_usual(name) and name not in places
            }
    if not places:
        return ""
    shown = ", ".join(f"{name} ({place})" for name, place in list(places.items())[:MOST_NAMED])
    said = _printed(job, list(places)[:MOST_NAMED])
    return (
        f"its program takes {shown} from the shell of its submission, which Slurm keeps only with AccountingStoreFlags=job_env"
        f"{said}"
    )


def _read_by(program: JobProgram) -> Iterator[tuple[str, str]]:
    """Yield the variables that a program reads and its script does not set, each with the file."""
    given = {word.partition("=")[0] for word in program.launch.words if "=" in word} | set(program.launch.variables)
    found = [(name, source) for source in program.sources for name in variables_in_source(source)]
    for name, source in found:
        if name not in given and not _is_usual(name):
            yield name, PurePosixPath(source.path).name


def _is_usual(name: str) -> bool:
    return OF_SYSTEM.fullmatch(name) is not None or OF_LAUNCHERS.fullmatch(name) is not None


def variables_in_source(source: TrainerSource) -> list[str]:
    """Return the variables that a program's text reads from its environment and does not set itself, in their order."""
    try:
        tree = syntax_tree(source.text)
    except UNPARSED:
        return []
    read: dict[str, None] = {}
    for node in ast.walk(tree):
        key = key_read(source, node)
        if key is not None:
            name = source.value(key)
            read.setdefault(name if isinstance(name, str) and re.fullmatch(r"\w{1,100}", name) else BY_NAME)
    made = set(_made(source, tree))
    return [name for name in read if name not in made]


def key_read(source: TrainerSource, node: ast.AST) -> ast.expr | None:
    """Return the expression that names the variable which a node reads; None for a node that reads none."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environ(source, node.value):
        return node.slice
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn) and _is_environ(source, node.comparators[0]):
        return node.left
    if not isinstance(node, ast.Call) or not node.args:
        return None
    name = dotted(node.func)
    if name in ("os.getenv", "getenv", "os.getenvb"):
        return node.args[0]
    of_environ = isinstance(node.func, ast.Attribute) and _is_environ(source, node.func.value)
    return node.args[0] if of_environ and name.rpartition(".")[2] in ("get", "pop", "setdefault", "__getitem__") else None


def _is_environ(source: TrainerSource, node: ast.expr) -> bool:
    name = dotted(node)
    if name in ("os.environ", "environ", "os.environb"):
        return True
    given = source.names.get(name, ())
    return any(dotted(one) in ("os.environ", "environ") or _copies_environ(one) for one in given)


def _copies_environ(node: ast.expr) -> bool:
    """Tell whether an expression is a copy: `dict(os.environ)`, `os.environ.copy()`."""
    if not isinstance(node, ast.Call):
        return False
    name = dotted(node.func)
    inner = dotted(node.args[0]) if node.args else ""
    return name == "os.environ.copy" or (name == "dict" and inner in ("os.environ", "environ"))


def _made(source: TrainerSource, tree: ast.Module) -> Iterator[str]:
    """Yield the variables that a program sets in any case, not only where they are missing."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and any(key_read(source, inner) is not None for inner in ast.walk(node.test)):
            continue
        if isinstance(node, ast.Assign):
            reads = any(key_read(source, inner) is not None for inner in ast.walk(node.value))
            for target in node.targets if not reads else ():
                if isinstance(target, ast.Subscript) and _is_environ(source, target.value):
                    name = source.value(target.slice)
                    yield from [name] if isinstance(name, str) else []
        waiting += ast.iter_child_nodes(node)


def variables_in_config(text: str) -> list[str]:
    """Return the variables that a configuration file takes from the environment; keys of the file itself are none."""
    code = "\n".join(line.partition(" #")[0] for line in text.splitlines() if not line.lstrip().startswith("#"))
    names = (match[1] or match[2] for match in IN_CONFIG.finditer(code))
    return [name for name in dict.fromkeys(names) if not re.search(rf"(?m)^[ \t]*[\"']?{re.escape(name)}[\"']?[ \t]*[:=]", code)]


def _printed(job: Job, names: Iterable[str]) -> str:
    """Return what the log shows of such values, for the person who submits the job by hand."""
    said: dict[str, str] = {}
    patterns = {name: re.compile(PRINTED.format(name=re.escape(name))) for name in names if name != BY_NAME}
    for line in log_lines(job, most_bytes=1 << 20):
        for name, pattern in patterns.items():
            if name not in said and (match := pattern.search(line.text[:1000])) is not None:
                said[name] = match[1]
        if len(said) == len(patterns):
            break
    shown = ", ".join(f"{name}={value}" for name, value in said.items())
    return f"; its log says {shown}, which nobody has checked" if said else ""
