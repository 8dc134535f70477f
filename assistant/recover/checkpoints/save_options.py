"""Which folders the programs of a job save into, by their options, configuration files and source. Pure; nothing is looked at."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import InputError
from assistant.recover.job_program import JobProgram, Option
from assistant.recover.resume.installed_trainers import installed_folders
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.temporary_folders import temporary_folders
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted
from assistant.untrusted import is_folder
from assistant.watch.hang import tells_of_service

SAVE_OPTIONS = (
    *(
        "checkpointer.output_dir",
        "checkpoints.checkpoints_path",
    ),
    *(
        "save",
        "save_dir",
        "save_folder",
        "save_path",
        "checkpoint_dir",
        "checkpoints_dir",
        "checkpoint_folder",
        "checkpoint_save_dir",
    ),
    *(
        "ckpt_dir",
        "ckpt_save_dir",
        "ckpt_folder",
        "save_ckpt_folder",
        "checkpoint_path",
        "checkpoint_save_path",
        "save_checkpoint_path",
    ),
    *("checkpoints", "dirpath", "checkpoint.save_dir", "checkpoint.dir", "checkpoint.path", "checkpoint.folder"),
    *("checkpointing.checkpoints_path", "checkpoint_config.checkpoint_dir", "trainer.default_local_dir"),
    *(
        "explicit_log_dir",
        "exp_dir",
        "output_dir",
        "out_dir",
        "output_folder",
        "default_root_dir",
        "project_dir",
        "workdir",
        "work_dir",
    ),
    *("run_dir", "log_dir", "output", "out", "save_to", "model_save_path"),
)
"""Names of options that name such a folder, the surest first."""
TORCHTITAN_OWN = ("checkpoint.interval", "checkpoint.enable", "checkpoint.folder", "checkpoint.enable_checkpoint", "model.flavor")
"""Options that torchtitan has beside those of its job."""
ROOT_OPTION = re.compile(
    r"(?:(?:output|out|save|results?|project|experiments?|exp|run|log|work|base|data|storage)_?)?(?:root|base|prefix)(?:_?(?:dir|path|folder))?"
)
"""Options that name a folder in which a program makes another."""
LOADED_FROM = ("checkpointer.checkpoint_dir",)
"""Options that end like those and name the weights that training starts from: torchtune's."""
NAMES = (
    "checkpoint_dir",
    "ckpt_dir",
    "save_dir",
    "checkpoints_dir",
    "output_dir",
    "out_dir",
    "CKPT_DIR",
    "CHECKPOINT_DIR",
    "SAVE_DIR",
    "OUT_DIR",
    "OUTPUT_DIR",
    "ckpt",
    "checkpoints",
    "CKPT",
    "CHECKPOINTS",
    "out",
    "save_path",
)
"""Variables of programs that name it."""
FOLDER_ARGUMENTS = {
    "TrainingArguments": ("output_dir", 0),
    "ModelCheckpoint": ("dirpath", 0),
    "NeMoLogger": ("log_dir", None),
    "AsyncCheckpointer": ("path", 0),
    "CheckpointManager": ("directory", 0),
    "ProjectConfiguration": ("project_dir", 0),
    "Accelerator": ("project_dir", None),
    "Trainer": ("default_root_dir", None),
    "CheckpointSaver": ("folder", 0),
}
"""Arguments of classes, by the end of the class's name: keyword and place."""
KERAS_ARGUMENTS = {
    "BackupAndRestore": ("backup_dir", 0),
    "CheckpointManager": ("directory", 1),
    "Estimator": ("model_dir", 1),
    "RunConfig": ("model_dir", 0),
    "MonitoredTrainingSession": ("checkpoint_dir", 2),
}
KERAS_PREFIXES = {"ModelCheckpoint": ("filepath", 0), "save": ("file_prefix", None), "write": ("file_prefix", None)}
"""Arguments of Keras and TensorFlow that name one checkpoint, or the prefix of its files: the folder above is meant."""
"""The same of Keras and TensorFlow, whose classes are named like Lightning's and Orbax's."""
FILE_ARGUMENTS = {
    "save_state": ("output_dir", 0),
    "save_checkpoint": ("filepath", 0),
    "save": ("checkpoint_id", 1),
    "save_pretrained": ("save_directory", 0),
    "savez": ("file", 0),
    "save_file": ("filename", 1),
    "async_save": ("checkpoint_id", 1),
}
"""Arguments of calls that name one checkpoint, whose folder is meant: keyword and place."""


class SaveFolder(NamedTuple):
    """A folder that a program is told to save into."""

    folder: Path
    how: str
    """For people: `--output_dir on the command line of train.py`."""
    sure: bool = True
    """False where the program may join it with another option that names a folder above it, or only its own writer shows it."""
    forms: frozenset[str] = frozenset()
    """How its programs name what they save there, as patterns in which each number is a 0: `model-0.mdl`, `stand_0`."""


def save_folders(programs: Sequence[JobProgram]) -> list[SaveFolder]:
    """Return the folders into which programs save, the surest first, each once; none that they have removed when they ended."""
    folders: dict[Path, SaveFolder] = {}
    for program in programs:
        for path, how in _of_program(program):
            folder = program.launch.outside(path) if path else None
            if folder is not None and folder not in folders:
                folders[folder] = SaveFolder(folder, how, not _may_be_joined(program, path, how))
    for program in programs:
        for place in file_uses(program).places():
            folder = program.launch.outside(place.folder)
            if folder is not None and UNRESOLVED not in str(folder):
                save_folder = folders.get(folder) or SaveFolder(folder, place.how, sure=False)
                folders[folder] = save_folder._replace(forms=save_folder.forms | place.forms)
    removed = {program.launch.outside(path) for program in programs for path in temporary_folders(program)}
    return [folder for path, folder in folders.items() if path not in removed or _is_there(path)]


def _is_there(folder: Path) -> bool:
    """Tell whether a folder is there that should have been removed, as behind a kill."""
    try:
        return is_folder(folder)
    except (OSError, InputError):
        return False


def _of_program(program: JobProgram) -> Iterator[tuple[str, str]]:
    folder = program.option("checkpoint.folder", "checkpoint.checkpoint_folder")
    dump = program.option("job.dump_folder", "dump_folder")
    told_fully = folder is not None and dump is not None
    # torchtitan and programs made from it: two parts, with defaults, which a configuration that cannot be read may replace
    of_its_form = program.option("job.dump_folder") is not None and program.option(*TORCHTITAN_OWN) is not None
    if told_fully or ((is_torchtitan(program) or of_its_form) and not program.unread("job.config_file")):
        above, below = dump.value if dump else "outputs", folder.value if folder else "checkpoint"
        yield str(PurePosixPath(above) / below), _how(folder or dump, program, "torchtitan's default")
    for folder_option in installed_folders(program):
        yield folder_option.value, _how(folder_option, program)
    for name in SAVE_OPTIONS:
        option = program.option(name)
        if option is not None and option.name in LOADED_FROM:
            continue
        if option is not None and option.value not in ("true", "false", "null", ""):
            yield _without_file(option.value), _how(option, program)
    own = program.option("model_dir")
    if own is not None and any(module.partition(".")[0] == "tensorflow" for source in program.sources for module in source.modules):
        yield own.value, _how(own, program)  # Estimator's and the Model Garden's; elsewhere a model to begin with
    for source in program.sources:
        yield from _of_source(source)


def _may_be_joined(program: JobProgram, path: str, how: str) -> bool:
    """Tell whether a relative folder of a configuration stands beside a folder that an unknown program may put before it."""
    if path.startswith(("/", "~", "./", "../")) or how.endswith("form") or is_torchtitan(program) or "default" in how:
        return False
    return any(ROOT_OPTION.fullmatch(option.last) and "/" in option.value and option.value != path for option in program.options)


def is_torchtitan(program: JobProgram) -> bool:
    """Tell whether a program is torchtitan's, by its module, its imports or, where it cannot be read, options of its own."""
    if program.launch.program.startswith("torchtitan.") or "torchtitan/" in program.launch.program:
        return True
    if any(source.parsed for source in program.sources):
        return any(name.partition(".")[0] == "torchtitan" for source in program.sources for name in source.modules)
    return program.option("job.config_file", "job.dump_folder") is not None and program.option(*TORCHTITAN_OWN) is not None


def _how(option: Option | None, program: JobProgram, default: str = "") -> str:
    if option is None:
        return default
    return f"{option.where} of {program.name}" if option.where.endswith("command line") else option.where


def _without_file(path: str) -> str:
    """Return the folder of a path that names a file or holds a pattern: `out/model_{epoch}.pt`."""
    pure = PurePosixPath(path)
    while (
        pure.suffix in (".pt", ".pth", ".ckpt", ".bin", ".npz", ".safetensors", ".h5", ".keras")
        or "{" in pure.name
        or "%" in pure.name
    ):
        pure = pure.parent
    return str(pure)


def _of_source(source: TrainerSource) -> Iterator[tuple[str, str]]:
    file = PurePosixPath(source.path).name
    for call in source.calls:
        for path, keyword in _of_call(source, call):
            yield path, f"{call.method}({keyword}…) in {file}, line {call.line}"
    for name in NAMES:
        value = source.named(name) if name in source.names or name in source.options else None
        if isinstance(value, str) and value and UNRESOLVED not in value:
            yield _without_file(value), f"{name} in {file}"


def _of_call(source: TrainerSource, call: SourceCall) -> Iterator[tuple[str, str]]:
    if any(module.partition(".")[0] in ("tensorflow", "keras", "tf_keras") for module in source.modules):
        keyword, place = KERAS_PREFIXES.get(call.method, ("", None))
        value = _argument(source, call, keyword, place) if keyword else None
        if isinstance(value, str) and (folder := _above(value)):
            yield folder, f"{keyword}="
            return
        keyword, place = KERAS_ARGUMENTS.get(call.method, ("", None))
        value = _argument(source, call, keyword, place) if keyword else None
        if isinstance(value, str):  # else Lightning's or Orbax's, in a program that imports TensorFlow as well
            if UNRESOLVED not in value:
                yield _without_file(value), f"{keyword}="
            return
    for ending, (keyword, place) in FOLDER_ARGUMENTS.items():
        if call.method.endswith(ending):
            value = _argument(source, call, keyword, place)
            if isinstance(value, str) and UNRESOLVED not in value:
                yield value, f"{keyword}="
            elif ending == "TrainingArguments" and keyword not in call.keywords and not call.positional:
                yield "trainer_output", "default of output_dir"  # transformers 4.46 and newer
    arguments = FILE_ARGUMENTS.get(call.method)
    if arguments is not None:
        value = _argument(source, call, *arguments)
        if isinstance(value, str):
            folder = _above(value)
            if folder:
                yield folder, ""


def _above(path: str) -> str:
    """Return the folder of one checkpoint; empty where it has none.

    What the step is called is not known before the run: `out/step_?` lies in `out`.
    """
    parts = PurePosixPath(path).parts
    cut = next((place for place, part in enumerate(parts) if UNRESOLVED in part or "{" in part), len(parts) - 1)
    return str(PurePosixPath(*parts[:cut])) if cut > 0 else ""


def _argument(source: TrainerSource, call: SourceCall, keyword: str, place: int | None) -> object:
    node = call.keywords.get(keyword)
    if node is None and place is not None and place < len(call.positional):
        node = call.positional[place]
    return source.value(node)


# Programs that keep no state of their own: servers and evaluations, of which a restart loses nothing.

SAVE_CALLS = re.compile(
    r"(?:async_)?save\w*|save|write_checkpoint|train_and_evaluate|MonitoredTrainingSession|Supervisor|dump|savez\w*|tofile|write_bytes|fit|train|checkpoint\w*|Trainer|\w+Trainer"
)
"""Calls by which a program may save; a program without any of them saves nothing."""
_NO_STATE = re.compile(r"(?:json|yaml|simplejson|orjson)\.dump|(?:\w+\.)*(?:savefig|savetxt)")
"""Calls of such names that write results or pictures."""
_CONTINUES = re.compile(
    r"(?<![a-z])(?:restart|resum(?:e|ing)|restor(?:e|ing)|snapshot|journal|backup|warm_?start|check-?point|ckpt)"
    r"|[\"'](?:--)?(?:continue|recover|proceed)[\"']|continu(?:e|ing) (?:from|at|after|behind)|carr(?:y|ies) on"
    r"|go(?:es|ing)? on (?:from|at|after)|pick(?:s|ing)? up (?:from|at|where)"
    r"|(?:read|load|get|parse)_\w{0,20}(?:state|slot|dump)|state_?(?:file|path|dir)",
    re.IGNORECASE,
)
"""Words of a program that can go on from what an earlier start of it wrote."""
_WRITES = frozenset("write writelines dumps memmap write_text".split())
_WRITES_ROWS = _WRITES | frozenset("writerow writerows to_csv to_parquet to_pickle to_hdf savetxt executemany execute".split())
_NO_FILE = re.compile(r"(?:\w+\.)*(?:wfile|stdout|stderr|json|response|resp|sock\w*|writer)\.(?:write|writelines|dumps)")
"""Calls of such names that write to a client or the log."""
_SERVES = re.compile(
    r"(?:^|[\s/])(?:(?:vllm|lmdeploy|ollama|xinference) serve|trl vllm-serve|text-generation-launcher|tritonserver|llama-server|"
    r"uvicorn|gunicorn)(?:\s|$)"
    r"|-m (?:vllm\.entrypoints\S*|sglang\.launch_server|http\.server|fastchat\.serve\S*)(?:\s|$)"
)
"""Command lines of servers: they load weights and write none."""
_SERVING = frozenset(
    "serve_forever run_app run_simple start_server add_insecure_port add_secure_port uvicorn.run web.run_app".split()
)
"""Calls by which a program serves others until it is ended."""
_WEB_FRAMEWORKS = frozenset("flask bottle quart sanic".split())
"""Of which `app.run(port=…)` serves."""
_SERVING_NAME = re.compile(r"serv(?:e|er|ing|ice)?(?![a-z])|(?<![a-z])api(?![a-z])|infer(?:ence)?|endpoint|gateway", re.IGNORECASE)
_LISTENS = re.compile(
    r"Uvicorn running on|Application startup complete|Running on https?://|Listening at: https?://|Serving HTTP on"
    r"|Started (?:GRPC\w*Service|HTTP\w*Service)|listening on (?:port \d|https?://|0\.0\.0\.0:\d|\[::\]:\d|\*:\d)",
    re.IGNORECASE,
)
"""Lines by which a server says that it can be asked; the rendezvous of a training says it otherwise."""
_NAMES_SAVES = re.compile(
    r"sav(?:e|ing)|ckpt|checkpoint|out(?:put)?_?-?(?:dir|path)|state_?-?(?:dir|file|path)|persist|snapshot|journal|data_?-?dir"
    r"|database|(?<![a-z])(?:db|wal)(?![a-z])",
    re.IGNORECASE,
)
"""Words of options that may say where a program saves."""
_LIBRARIES = frozenset(
    "torch torchvision numpy pandas transformers tokenizers datasets safetensors vllm sglang fastapi flask starlette uvicorn "
    "aiohttp httpx requests grpc pydantic openai gradio tqdm yaml PIL sklearn scipy matplotlib evaluate sacrebleu rouge_score "
    "lm_eval sentence_transformers peft accelerate bottle tornado sanic quart hypercorn waitress werkzeug jinja2 msgpack click "
    "typer tyro loguru rich psutil prometheus_client einops sentencepiece tiktoken orjson uvloop httptools".split()
)
"""Of which no call but those of SAVE_CALLS saves."""
_NETWORK = frozenset("socket http urllib smtplib ftplib xmlrpc requests httpx aiohttp openai grpc".split())
"""Modules by which a program that is no server may ask another machine to keep something."""
_MOVES = frozenset("os.replace os.rename os.renames shutil.move".split())
_STORES = frozenset("sqlite3 shelve dbm mmap ctypes".split())
"""Modules by which a program keeps state without a call that tells of it."""


def silent_programs(programs: Sequence[JobProgram]) -> list[JobProgram]:
    """Return the programs whose source was read and holds no call that may save; what their libraries do is not known."""
    read = [program for program in programs if program.source is not None and program.source.parsed and not program.starts_others]
    return [
        program
        for program in read
        if not any(SAVE_CALLS.fullmatch(call.method) for call in program.calls)
        and not file_uses(program).saves
        and not _serves_with_state(program)
        and not _writes_what_it_continues(program)
        and not _reaches_others(program)
    ]


def _writes_what_it_continues(program: JobProgram) -> bool:
    """Tell whether a program writes a file of its own, in any form, and speaks of going on from something."""
    logged = file_uses(program).log_lines
    calls = [call for call in program.calls if call.method in _WRITES_ROWS and not _NO_FILE.fullmatch(call.name)]
    unreached = [call for source in program.sources for call in source.unreached if call.method in _WRITES_ROWS]
    writes = any(call not in logged for call in (*calls, *unreached)) or bool(_imported(program) & _STORES)
    return writes and any(_CONTINUES.search(source.text) for source in program.sources)


def _reaches_others(program: JobProgram) -> bool:
    """Tell whether a program imports what may keep something on another machine, or a library of which nothing is known."""
    imported = _imported(program)
    return bool(imported & _NETWORK) or not imported <= sys.stdlib_module_names | _LIBRARIES | _names_beside(program) | {""}


def _names_beside(program: JobProgram) -> set[str]:
    """Return the names of the modules and packages beside a program."""
    return {PurePosixPath(module.path).stem for module in program.modules} | {
        PurePosixPath(module.path).parent.name for module in program.modules
    }


def _serves_with_state(program: JobProgram) -> bool:
    """Tell whether a server opens a store, or puts a file in the place of another one while it serves."""
    if not any(map(_serving_lines, program.sources)):
        return False
    moves = [call for call in program.calls if call.name in _MOVES]
    return bool(_imported(program) & _STORES) or not all(_is_before_serving(program, call) for call in moves)


def _imported(program: JobProgram) -> set[str]:
    """Return the modules at the top that a program and what lies beside it import."""
    return {name.lstrip(".").partition(".")[0] for source in program.sources for name in source.modules}


_OPENS_IN_PLACE = frozenset("memmap open_memmap HDFStore".split())
"""Calls that give a file back as something that is changed by changing it."""


def keeps_no_state(programs: Sequence[JobProgram]) -> bool:
    """Tell whether all programs of a script are known to save no state: servers, or sources read with all that they import."""
    return bool(programs) and all(
        _SERVES.search(" ".join(program.launch.words)) or (_is_read_whole(program) and not _writes_in_place(program))
        for program in programs
    )


def _writes_in_place(program: JobProgram) -> bool:
    """Tell whether a program may change a file where it lies, which is a state as much as one that it saves."""
    for call in (call for source in program.sources for call in source.calls):
        mapped = call.keywords.get("mmap_mode")
        if call.method == "load" and mapped is not None and ast.unparse(mapped) not in ("None", "'r'", "'c'"):
            return True
        if call.method in _OPENS_IN_PLACE or (call.name == "torch.from_file" and "shared" in call.keywords):
            return True
    return False


def only_serves(programs: Sequence[JobProgram], texts: Iterable[str]) -> bool:
    """Tell whether all that a script starts is one server that cannot be read, by its name, its log and its options.

    Args:
        programs: What the script starts.
        texts: Lines of the log.
    """
    if len(programs) != 1 or programs[0].sources or programs[0].unread_behind:
        return False
    words = programs[0].launch.words
    place = next((at + 1 for at, word in enumerate(words) if word == "-m"), None)
    name = words[place] if place is not None and place < len(words) else programs[0].name
    options = [word.partition("=")[0] for word in words if word.startswith("-") or "=" in word]
    serves = _SERVING_NAME.search(name.rpartition("/")[2]) is not None
    if not serves or any(map(_NAMES_SAVES.search, options)):
        return False
    return any(_LISTENS.search(text) or tells_of_service(text) for text in texts)


def _serving_lines(source: TrainerSource) -> list[int]:
    """Return the lines at which a program begins to serve: `server.serve_forever()`, `Thread(target=server.serve_forever)`."""
    runs_app = bool({name.partition(".")[0] for name in source.modules} & _WEB_FRAMEWORKS)
    return [
        call.line
        for call in source.calls
        if {call.method, call.name} & _SERVING
        or any(dotted(value).rpartition(".")[2] in _SERVING for value in (*call.positional, *call.keywords.values()))
        or (runs_app and call.method == "run" and {"host", "port"} & {*call.keywords})
    ]


def _is_only_announced(program: JobProgram, call: SourceCall) -> bool:
    """Tell whether a server writes text once, before it serves: its address, a mark that it is ready."""
    is_text = call.method in ("write", "write_text", "dump")
    return is_text and any(map(_serving_lines, program.sources)) and _is_before_serving(program, call)


def _is_before_serving(program: JobProgram, call: SourceCall) -> bool:
    """Tell whether a server makes a call once, and before it serves."""
    uses = file_uses(program)
    source = next((text for text in program.sources if any(own is call for own in text.calls)), None)
    caller = uses.caller_of(source, call) if source is not None else None
    if caller is None or source is None or uses.is_repeated(caller):
        return False
    if caller.scope is None and any(line < call.line for line in _serving_lines(source)):
        return False  # it has served by then: what it writes may be what it was told
    return caller.scope is None or any(True for _ in uses.reader.callers(caller.source, caller.scope))


def _is_to_client(call: SourceCall) -> bool:
    """Tell whether a call such as `json.dump(answer, self.wfile)` writes to a client and no file."""
    return any(_NO_FILE.fullmatch(f"{dotted(value)}.write") for value in (*call.positional[1:2], *call.keywords.values()))


def _is_read_whole(program: JobProgram) -> bool:
    if (
        program.unread_behind
        or program.starts_others
        or not program.sources
        or not all(source.parsed for source in program.sources)
    ):
        return False
    if any(SAVE_CALLS.fullmatch(call.method) and not _NO_STATE.fullmatch(call.name) for call in program.calls):
        return False
    written = [call for call in program.calls if _NO_STATE.fullmatch(call.name) and not _is_to_client(call)]
    if any(map(_serving_lines, program.sources)) and not all(_is_only_announced(program, call) for call in written):
        return False  # an evaluation writes its results so, and a server what it was told
    logged = file_uses(program).log_lines
    writes = (call for call in program.calls if call.method in _WRITES and not _NO_FILE.fullmatch(call.name))
    if any(call not in logged and not _is_only_announced(program, call) for call in writes):
        return False
    if file_uses(program).saves or _serves_with_state(program) or _writes_what_it_continues(program):
        return False
    imported = _imported(program)
    return not imported & _STORES and imported <= sys.stdlib_module_names | _LIBRARIES | _names_beside(program) | {""}
