"""Settings of one start of a program: options, globals that a configurator sets, and variables of its environment.

The value of an option that names a checkpoint is a path, a number, or a name below a folder. An option that is declared to be a
number takes no path, and its help says what it names; where neither does, all are likely, and a trial start tells which of them
leads to the checkpoint.

Of nanoGPT and its kin: `exec(open("configurator.py").read())` runs a file that sets the globals of the program from `--key=value`.

`LR=3e-4 sbatch train.sh` with `os.environ["LR"]` in the program would come back with another learning rate, or none, where the
scheduler kept no environment. Sources, configurations and the scripts that the batch script calls are read as far as they can be;
what a log printed of a value is reported and never used.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from assistant.processes import NAME as VARIABLE_NAME
from assistant.records import Job
from assistant.recover.job_program import CONFIGS, FileReader, JobProgram, programs_of
from assistant.recover.joblog import log_lines
from assistant.recover.restart import NOT_SAFE, VARIABLE
from assistant.recover.source.declared_settings import UNKNOWN
from assistant.recover.source.trainer_source import UNPARSED, TrainerSource, dotted, syntax_tree
from assistant.schedulers.slurm_spec import OF_SYSTEM, environment_doubt

PATH, STEP, NAME = "{checkpoint}", "{step}", "{name}"
OF_A_NAME = re.compile(
    r"\btags?\b|\bsub-?(?:folder|directory|dir)\b|\b(?:below|under|inside|within|relative to)\b|\bname of\b", re.IGNORECASE
)
OF_A_STEP = re.compile(r"\b(?:step|iteration|iter|epoch|update)s?(?: number)?\b", re.IGNORECASE)
OF_A_PATH = re.compile(r"\bpath\b|\bfile\b|\bfolder\b|\bdirectory\b|\.(?:pt|pth|ckpt|npz|bin)\b|/", re.IGNORECASE)
NAMES_A_STEP = re.compile(r"(?:^|_)(?:step|iter|iteration|epoch|update|batch)s?(?:$|_)", re.IGNORECASE)
NAMES_A_NAME = re.compile(r"(?:^|_)(?:tag|name)(?:$|_)", re.IGNORECASE)


def value_templates(programs: Sequence[JobProgram], option: str, variable: str) -> tuple[str, ...]:
    """Return what may stand for a checkpoint in an option or a variable, the most likely first.

    Args:
        programs: What a script starts.
        option: That the variable reaches, normalised; empty where its program reads the variable itself.
        variable: Its name.
    """
    for program in programs:
        for source in program.sources:
            for call in source.called("add_argument", "option") if option else ():
                flags = [node.value for node in call.positional if isinstance(node, ast.Constant) and isinstance(node.value, str)]
                if not any(flag.lstrip("-").replace("-", "_").lower() == option for flag in flags):
                    continue
                if dotted(call.keywords.get("type", ast.Constant(None))) == "int":
                    return (STEP,)
                explanation = source.value(call.keywords.get("help"))
                return _by_words(explanation if isinstance(explanation, str) else "", f"{option}")
            if not option and source.parsed and is_made_a_number(source.text, variable):
                return (STEP,)
    return _by_words("", option or variable)


def _by_words(explanation: str, name: str) -> tuple[str, ...]:
    """Return the templates by what the help of an option says, else by its name."""
    if OF_A_NAME.search(explanation) or (not explanation and NAMES_A_NAME.search(name)):
        return (NAME, PATH, STEP)
    if OF_A_PATH.search(explanation):
        return (PATH, NAME)
    if OF_A_STEP.search(explanation) or NAMES_A_STEP.search(name):
        return (STEP, NAME)
    return (PATH, NAME, STEP)


def is_made_a_number(text: str, variable: str) -> bool:
    """Tell whether a program makes a number of a variable of its environment: `int(os.environ.get("RESTORE_STEP", 0))`."""
    for node in ast.walk(syntax_tree(text)):
        arguments = node.args[:1] if isinstance(node, ast.Call) and dotted(node.func) == "int" else []
        inner = (part for argument in arguments for part in ast.walk(argument))
        if any(isinstance(part, ast.Constant) and part.value == variable for part in inner):
            return True
    return False


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
    names_made = {name for program in programs for name in program.launch.variables}
    for path, text in reader.texts.items():
        if text and PurePosixPath(path).suffix in CONFIGS:
            places |= {
                name: PurePosixPath(path).name
                for name in variables_in_config(text)
                if name not in names_made and not _is_usual(name) and name not in places
            }
    if not places:
        return ""
    listing = ", ".join(f"{name} ({place})" for name, place in list(places.items())[:MOST_NAMED])
    printed_values = _printed(job, list(places)[:MOST_NAMED])
    return (
        f"its program takes {listing} from the shell of its submission, which Slurm keeps only with AccountingStoreFlags=job_env"
        f"{printed_values}"
    )


def _read_by(program: JobProgram) -> Iterator[tuple[str, str]]:
    """Yield the variables that a program reads and its script does not set, each with the file."""
    words_given = {word.partition("=")[0] for word in program.launch.words if "=" in word} | set(program.launch.variables)
    reads = [(name, source) for source in program.sources for name in variables_in_source(source)]
    for name, source in reads:
        if name not in words_given and not _is_usual(name):
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
    names_made = set(_made(source, tree))
    return [name for name in read if name not in names_made]


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
    values_bound = source.names.get(name, ())
    return any(dotted(value) in ("os.environ", "environ") or _copies_environ(value) for value in values_bound)


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
    printed_values: dict[str, str] = {}
    patterns = {name: re.compile(PRINTED.format(name=re.escape(name))) for name in names if name != BY_NAME}
    for line in log_lines(job, most_bytes=1 << 20):
        for name, pattern in patterns.items():
            if name not in printed_values and (match := pattern.search(line.text[:1000])) is not None:
                printed_values[name] = match[1]
        if len(printed_values) == len(patterns):
            break
    names_shown = ", ".join(f"{name}={value}" for name, value in printed_values.items())
    return f"; its log says {names_shown}, which nobody has checked" if printed_values else ""


Read = Callable[[str], str | None]
QUOTED = re.compile(r"['\"](\w[\w.-]{0,40})['\"]")
KNOWN_TYPES = (bool, int, float, str)


class StartSetting(NamedTuple):
    """A value that a start can be given."""

    key: str
    """As the source names it."""
    flag: str
    """As the command line writes it: `--resume-from`."""
    value: Any
    """What it has now; None where it has none, UNKNOWN where that is not known."""
    kind: type
    """Of what it takes."""
    alone: bool = False
    """Whether its flag takes no value."""
    quoted: bool = False
    """Whether its text has to be a literal of Python, with its quotes: the program evaluates it."""
    words: tuple[str, ...] = ()
    """The values that its declaration, a comment behind it or a comparison names."""
    variable: bool = False
    """Whether it is a variable of the environment; its flag is its name."""
    passed: bool = False
    """Whether the command line of the program gives it a value."""

    def assignment(self, text: str) -> str:
        """Return the word that gives it a value; of a template the places stay."""
        if self.alone:
            return self.flag
        return f"{self.flag}='{text}'" if self.quoted and self.kind is str else f"{self.flag}={text}"


def start_settings(program: JobProgram, read: Read) -> dict[str, StartSetting]:
    """Return the values that a start can be given, by the names that the source reads them by.

    Args:
        program: Of a job's script.
        read: Reads with the rights of its owner.

    Raises:
        Unavailable: The storage did not answer.
    """
    return {**_variables(program), **_globals(program, read), **_declared(program)}


def variable_key(name: str) -> str:
    """Return the name under which a variable of the environment stands among the settings."""
    return f"${name}"


def _variables(program: JobProgram) -> dict[str, StartSetting]:
    """Return the variables of its environment that a program reads; one that a restart of ours set counts as not set."""
    variables: dict[str, StartSetting] = {}
    for source in program.sources:
        own = [name for name in source.environment.get(VARIABLE, "").split(",") if name]
        for node in ast.walk(syntax_tree(source.text)) if source.parsed else ():
            name = source.value(key_read(source, node))
            if not isinstance(name, str) or not VARIABLE_NAME.fullmatch(name):
                continue
            default = source.value(node.args[1]) if isinstance(node, ast.Call) and len(node.args) > 1 else None
            value = source.environment.get(name, default) if name not in own else default
            kind = int if is_made_a_number(source.text, name) else str
            typed = _typed(value, kind) if isinstance(value, str) else value
            variables.setdefault(variable_key(name), StartSetting(variable_key(name), name, typed, kind, variable=True))
    return variables


def _declared(program: JobProgram) -> dict[str, StartSetting]:
    """Return the options of argparse that take one plain value, or none, by the names that the source reads them by."""
    declared: dict[str, StartSetting] = {}
    for source in program.sources:
        for call in source.called("add_argument"):
            names = [node.value for node in call.positional if isinstance(node, ast.Constant) and isinstance(node.value, str)]
            flag = next((name for name in names if name.startswith("--")), "")
            action = source.value(call.keywords["action"]) if "action" in call.keywords else "store"
            if not flag or NOT_SAFE.search(flag) or action not in ("store", "store_true") or "nargs" in call.keywords:
                continue
            dest = source.value(call.keywords.get("dest"))
            key = dest if isinstance(dest, str) else flag.lstrip("-").replace("-", "_")
            name = dotted(call.keywords["type"]) if "type" in call.keywords else "str"
            kind = {"int": int, "str": str, "float": float, "Path": str, "pathlib.Path": str}.get(name)
            if kind is None:
                continue
            choices = call.keywords.get("choices")
            words = [source.value(item) for item in choices.elts] if isinstance(choices, ast.List | ast.Tuple) else []
            explanation = source.value(call.keywords.get("help"))
            words += QUOTED.findall(explanation) if isinstance(explanation, str) else []
            is_flag = action == "store_true"
            value = source.options.get(key, UNKNOWN)
            declared[key] = StartSetting(
                key,
                flag,
                _typed(value, int) if kind is int and isinstance(value, str) else value,
                bool if is_flag else kind,
                alone=is_flag,
                words=tuple(word for word in words if isinstance(word, str)),
                passed=any(word.partition("=")[0] == flag for word in source.arguments),
            )
    return declared


def _globals(program: JobProgram, read: Read) -> dict[str, StartSetting]:
    """Return the globals of a program that its configurator takes from `--key=value`: `exec(open("configurator.py").read())`."""
    source = program.source
    if source is None or not source.parsed:
        return {}
    run = next(
        (node for node in ast.walk(syntax_tree(source.text)) if isinstance(node, ast.Call) and dotted(node.func) == "exec"), None
    )
    texts = [node.value for node in ast.walk(run) if isinstance(node, ast.Constant)] if run is not None else []
    names = [text for text in texts if isinstance(text, str) and text.endswith(".py")]
    if run is None or len(names) != 1:
        return {}
    paths = dict.fromkeys(
        str(PurePosixPath(folder) / names[0]) for folder in (program.launch.folder, PurePosixPath(source.path).parent)
    )
    text = next((text for path in paths if (text := read(path))), "")
    evaluates = _configurator(text)
    if evaluates is None:
        return {}
    lines = source.text.splitlines()
    declared: dict[str, StartSetting] = {}
    for statement in syntax_tree(source.text).body:
        if statement.lineno >= run.lineno:
            break
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if (
            not isinstance(target, ast.Name)
            or not isinstance(statement, ast.Assign)
            or not isinstance(statement.value, ast.Constant)
        ):
            continue
        kind = type(statement.value.value)
        comment = lines[statement.lineno - 1].partition("#")[2]
        if kind in KNOWN_TYPES and not target.id.startswith("_"):
            option = program.option(target.id)
            value = _typed(option.value, kind) if option is not None else statement.value.value
            words = tuple(QUOTED.findall(comment))
            is_passed = option is not None and option.where.endswith("on the command line")
            declared[target.id] = StartSetting(
                target.id, f"--{target.id}", value, kind, quoted=evaluates, words=words, passed=is_passed
            )
    return declared


def _configurator(text: str) -> bool | None:
    """Return whether a configurator evaluates what it is given; None where it is none whose way is known.

    One that runs each word as code, or builds code of it, is none: what it would do with a path is not known.
    """
    try:
        tree = syntax_tree(text)
    except UNPARSED:
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    takes_words = re.search(r"\bsys\.argv\[1:\]", text) is not None
    apart = any(
        dotted(call.func).rpartition(".")[2] in ("split", "partition")
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and call.args[0].value == "="
        for call in calls
    )
    sets = re.search(r"\bglobals\(\)\[\w+\]\s*=[^=]", text) is not None
    runs = [call for call in calls if dotted(call.func) == "exec" and "open(" not in ast.unparse(call)]
    if not (takes_words and apart and sets) or runs:
        return None
    return any(dotted(call.func) == "eval" for call in calls)


def _typed(text: str, kind: type) -> Any:
    """Return the value of a text that a configuration or the command line holds, as its type."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), UNKNOWN)
    try:
        return kind(text.strip("'\"") if kind is str else text)
    except ValueError:
        return UNKNOWN
