"""Fill what templates of advice may quote beside the words of the cited line: the place, the expression, the library.

A slot that the case cannot fill is absent, so that no clause with it is said.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import PurePosixPath
from posixpath import normpath

from assistant.content.reading import package_for, successor_of
from assistant.diagnose.advice.amounts import memory_to_ask_for
from assistant.diagnose.advice.conditions import conditions_of, doubled_part, nan_of_backward, refused_by, steps_out_of_memory
from assistant.diagnose.advice.decisive import (
    cancelled_with,
    compiler_of,
    empty_list,
    environment_with,
    fields_of_row,
    file_not_opened,
    first_nan,
    gpu_shared,
    gpus_shown,
    handed_over,
    hosts_apart,
    largest_process,
    launched_by_torch,
    lost_options,
    module_holder,
    outer_folder,
    processes_started,
    program_folder,
    recomputing,
    resolved_folder,
    root_of_code,
    text_setting,
)
from assistant.diagnose.advice.near_names import known_folder
from assistant.diagnose.advice.path_state import path_without_space
from assistant.diagnose.advice.standing import rate_lowered
from assistant.diagnose.advice.stopped import batch_system, record_command, sender, who_knows
from assistant.diagnose.advice.takers import taker_slots
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import PORT, WORKERS, option_with, setting, settings_named, version_of
from assistant.diagnose.readers.expressions import (
    ATTRIBUTE,
    KEY,
    UNPACKED,
    absolute_part,
    assigned,
    called,
    names_taken,
    operands_of,
    subject_named_in,
    subject_of,
    text_operand,
)
from assistant.diagnose.readers.origin import (
    Origin,
    ProgramKind,
    ProgramOfLog,
    caller_of,
    frames_of,
    message_of,
    raised_at,
    source_of,
)
from assistant.diagnose.readers.tracebacks import Episode, Raised
from assistant.diagnose.readers.versions_of_python import version_slots
from assistant.records import Citation, Diagnosis
from assistant.recover.checkpoints.place import saved_into

_FUNCTION = re.compile(
    r"(?:([\w.<>]{1,120})\(\)|([\w.]{1,120})) (?:got (?:an unexpected|multiple|some)|missing \d|takes (?:\d|from|no|exactly|at))"
)
_ARGUMENT = re.compile(r"(?:unexpected keyword argument|multiple values for (?:keyword )?argument) '(\w{1,80})'")
_IMPORTED = re.compile(r"cannot import name '?(\w{1,100})|No module named '?([\w.]{1,100})")
_UNDEFINED = re.compile(r"name '(\w{1,120})' is not defined")
_WRITES = re.compile(
    r"open\(.*,\s*(?:mode\s*=\s*)?['\"][wax]\+?b?\+?['\"]|\.save\(|\bsave\w*\(|to_(?:csv|json|parquet|pickle|excel)\(|savefig\(|\.dump\(|makedirs\(|mkdir\("
    r"|imwrite\(|File\(.*['\"][wa]-?['\"]|SummaryWriter\(|FileHandler\(|\.write\w*\(|savetxt\(|torch\.save"
)
_MISSING = re.compile(
    r"(?:No such file or directory: |name = )['\"]([^'\"]{1,300})['\"]|\b[Nn]ot found: {1,4}([^\s;]{1,300}); No such file"
)
_CREATES = re.compile(r"create file|o_flags = \w*[1-9a-f]42|flags = 1[3-9]", re.IGNORECASE)
_HOME = re.compile(r"^(/(?:home|Users|users|root|u)/[^/]{1,60}/|[A-Z]:[\\/])")
_TEMPORARY = re.compile(r"No space left on device.{0,20}?['\"](/(?:var/)?tmp)/")
_ASSERTION = re.compile(r"Assertion `(.{1,160}?)`? failed")
_COMPARED = re.compile(r"^assert\s+(.{1,80}?)\s*(==|!=|<=|>=|<|>| in | is )\s*(.{1,80}?)(?:,\s*f?['\"].*)?$")
_UNPACKING = re.compile(r"\*\*([A-Za-z_][\w.]{0,80})")
_ARGUMENTS = re.compile(r"sys\.argv\[[^\]]{1,20}\]")
_EVALUATED = re.compile(r"\beval\([^()]{1,80}\)")
_MODULE = re.compile(r"cannot import name '?\w{1,100}'? from (?:partially initialized module )?'?(\w{1,100})")
_ROWS = re.compile(r"input array from shape \((\d{1,9})((?:,\d{1,9}){0,6},?)\) into shape \((\d{1,9})((?:,\d{1,9}){0,6},?)\)")
_PAIRS = ((r"^enumerate\(", "a number and an element"), (r"\.items\(\)$", "a key and a value"))
_MAKES = re.compile(
    r"(?:torch\.(?:ones|zeros|arange|rand|randn|randint|full|eye|tensor(?!\(-?[\d.]{1,20}\))|empty|linspace|Tensor|FloatTensor|LongTensor|from_numpy)"
    r"\((?:[^()]|\([^()]{0,80}\)){0,120}\))(?!\.(?:to|cuda)\()"
)
"""Calls that make a tensor on the host where no device is named."""
_SHARDED = re.compile(
    r"\b(?:FSDP|FullyShardedDataParallel|fully_shard)\b|ZeRO-3|zero3|zero_stage['\"]?[:= ]+3\b|stage3", re.IGNORECASE
)
_LAUNCHER_SETS = frozenset("RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT GROUP_RANK".split())
_WARNED = re.compile(r"longer than the specified maximum|exceed the model's predefined maximum length")
_DIVISOR = re.compile(r"(?<!/)//?=?\s*([A-Za-z_][\w.]{0,60}(?:\([^()]{0,60}\)|\[[^\[\]]{0,60}\])?)[^/]*$")
_PARSED = re.compile(r"(?:Syntax|Indentation|Tab)Error")
_LIBSTDCXX = re.compile(r"GLIBCXX_3\.4\.\d{1,2}\b")
_APPLICATION = frozenset(
    "find_app import_from_cwd import_from_string import_app load_app locate_app load_wsgi load_wsgiapp".split()
)
"""Functions of Celery, uvicorn, gunicorn and Flask that import the application which they are to serve."""
_ALIASES = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "plt": "import matplotlib.pyplot as plt",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "dist": "import torch.distributed as dist",
    "tqdm": "from tqdm import tqdm",
    "torch": "import torch",
    "wandb": "import wandb",
    "partial": "from functools import partial",
    "Path": "from pathlib import Path",
    "defaultdict": "from collections import defaultdict",
    "Optional": "from typing import Optional",
    "List": "from typing import List",
    "Dict": "from typing import Dict",
    "Any": "from typing import Any",
    "Union": "from typing import Union",
    "Tuple": "from typing import Tuple",
}
_OWN_NAMES = frozenset(
    "utils util models model src data config configs common lib tools core scripts train trainer trainers helpers modules networks "
    "losses layers engine options dataloader dataloaders dataset test tests metrics args settings constants loss".split()
)
"""Names that people give to folders and files of their own code."""
_SENTENCES = frozenset(
    {
        "compare",
        "who_knows",
        "fits",
        "swapped",
        "conversion",
        "transposed",
        "place",
        "own",
        "checked_at",
        "checked_values",
        "channels",
        "gpu_shared",
        "taker",
    }
)
"""Slots that hold a part of a sentence of our own, or a place in the code, which are never cut."""
NO_FILE = frozenset({"<unknown>", "<string>"})
"""What stands for the file of a text that `ast.literal_eval` or `eval` parses."""
MOST_OF_VALUE, MOST_OF_LINE = 160, 400
ASSERTS_BEHIND = 200
"""Lines behind an error of a device in which the check that failed may be printed: the device speaks after the program."""
_LIMIT_OF_MEMORY = re.compile(r"(?:>|exceeds|limit(?: of)?:?) {0,2}(\d[\d.]{0,15} ?[KMGTkmgt]i?[Bb])\b")
_OF_MEMORY = re.compile(r"[Oo]om|OOM|OUT_OF_MEMORY|[Mm]emory")
_OF_MAPPING = re.compile(r"Bus error|SIGBUS|signal 7\b|exitcode ?: ?-7\b")
_OF_GPUS = re.compile(r"invalid device ordinal|CUDA GPUs are available|no CUDA-capable device|Invalid device id|device_id")
_OPENED = re.compile(r"can't open file '([^']{1,300})'")
_COMPARES = re.compile(r"self\.assert(?:Less|Greater)(?:Equal)?\((.{1,80}?),\s*([^,()]{1,80}(?:\([^()]{0,40}\))?)(?:,.*)?\)?$")
"""A comparison of Python's unittest: what was measured, and its bound."""
_APPLIED = re.compile(r"^(?:[\w., ]{1,80} = )?((?:self\.)?[A-Za-z_]\w{0,60})\((?!.*=\s*[A-Za-z_]\w*\()")
_KINDS = {ProgramKind.TRAINING: "training", ProgramKind.SERVING: "serving", ProgramKind.EVALUATION: "evaluation"}
_WORDS = {ProgramKind.TRAINING: "training", ProgramKind.SERVING: "server", ProgramKind.EVALUATION: "evaluation"}
"""By kind of program: the slot that only it fills, and what it is called."""
_NO_TERMINAL = re.compile(r"EOFError|Bad file descriptor|Inappropriate ioctl|not a TTY|StdinNotImplementedError|BdbQuit|no-tty")
_ASKS = re.compile(r"\b(?:raw_)?input\(|getpass\(|\bpdb\b|breakpoint\(|set_trace\(|embed\(|click\.(?:confirm|prompt)\(")
_REQUIRED = re.compile(r"[Rr]equires?:? [`'\"]?([A-Za-z][\w-]{1,40})[`'\"]?(?![\w-]*[(\[])")


def slots_of(
    verdict: Diagnosis,
    cited: Citation,
    origin: Origin | None,
    facts: Facts,
    raised: tuple[Episode, Raised] | None,
    program: ProgramOfLog,
) -> dict[str, str]:
    """Return what the case fills for the templates of a cited line."""
    text = " ".join(message_of(cited, facts)[:4])
    slots = {**_of_names(text, origin.code if origin is not None else ""), **_of_files(text, origin, cited, facts)}
    slots |= _of_asserts(cited, facts)
    slots |= _of_settings(text, origin, cited, facts)
    slots["temporary"] = match[1] if (match := _TEMPORARY.search(text)) else ""
    if "No space left" in text:
        slots |= path_without_space(text)
    if origin is not None:
        slots |= _of_origin(text, origin) | _of_module(text, origin, cited, facts)
        slots |= handed_over(text, origin)
        slots |= taker_slots(cited, origin, facts, slots)
        if not (slots["subject"] and origin.own):
            slots |= _of_library(text, origin, cited, facts)
    if _PARSED.search(text) and raised is not None and raised[1].frames:
        frame = raised[1].frames[-1]
        if frame.file in NO_FILE:  # what a program had parsed as Python is shown as its source
            slots["parsed_text"] = source_of(frame, facts)
        else:
            slots |= {"parsed": f"{frame.file}:{frame.line}", "parsed_code": source_of(frame, facts)} if not frame.function else {}
        slots |= version_slots(text, source_of(frame, facts))
    elif _PARSED.search(text) and origin is not None and not origin.function:
        slots |= {"parsed": origin.place, "parsed_code": origin.code} | version_slots(text, origin.code)
    elif "TypeError" in text and origin is not None:
        slots |= version_slots(text, origin.deepest or origin.code) | {"parsed": origin.place}
    if not facts.points and not facts.progress.steps:
        slots |= {"service": "service", "start": "before the first step"}
    if program.kind in _KINDS:
        slots[_KINDS[program.kind]] = _WORDS[program.kind]
    if path := slots.get("path"):
        slots["option"] = option_with(facts, path, cited.line)
    if facts.job_id:
        slots["job"] = facts.job_id
    if origin is not None and "*args" in origin.code:
        slots["handed_from"] = caller_of(cited, facts)[0]
    slots |= _of_surroundings(text, origin, cited, facts) | steps_out_of_memory(text, facts) | nan_of_backward(text, facts)
    if origin is not None and origin.own and not origin.library:
        slots |= operands_of(text, origin.code, slots.get("subject", ""), cited.line, facts)
    slots |= conditions_of(text, origin, facts, raised, slots.get("subject", ""), cited.line, frames_of(cited, facts))
    if (match := _LIBSTDCXX.search(text)) is not None:
        slots["gcc"] = compiler_of(match[0])
    if "ddress already in use" in text and launched_by_torch(facts):
        slots["port_option"] = "--master_port"
    if "device-side assert" in text and (nan := first_nan(facts, cited.line)) is not None:
        slots |= {"nan": f"{nan[0]} (job.log:{nan[1]})", "rate": rate_lowered(facts)}
    slots["recomputed"] = recomputing(facts, cited.line) if "does not require grad" in text else ""
    if match := _IMPORTED.search(text):
        slots["has_it"] = environment_with(match[2], cited, facts) if match[2] and "." not in match[2] else ""
    if "exceeded" in text:
        slots["largest"] = largest_process(facts)
    if verdict.reason == "out_of_memory_error" and _OF_MEMORY.search(text):
        lines_after = " ".join(line.text[:MOST_OF_LINE] for line in facts.between(cited.line, cited.line + 3))
        limit = _LIMIT_OF_MEMORY.search(lines_after if cited.file == "job.log" else text)
        slots["ask_memory"] = memory_to_ask_for(facts, limit[1] if limit is not None else "")
    if verdict.reason == "loss_spike":
        slots["rate"] = rate_lowered(facts)
    if verdict.reason == "cancelled":
        slots |= {"cancelled_with": cancelled_with(cited, facts), "sent_by": sender(facts, verdict), "who_knows": who_knows(facts)}
    if verdict.step is not None and not facts.progress.learnt:
        slots["step"] = str(verdict.step)
    if verdict.reason == "dataloader_killed":
        slots["who_knows"] = who_knows(facts)
    return {name: value if name in _SENTENCES else cut(value, MOST_OF_VALUE) for name, value in slots.items() if value}


def _of_surroundings(text: str, origin: Origin | None, cited: Citation, facts: Facts) -> dict[str, str]:
    """Return what other lines of the log decide: the batch system, GPUs and processes, settings that are text, lost options."""
    system = batch_system(facts)
    slots = {"more_memory": system.memory, "ask_gpus": system.gpus, "job_record": record_command(facts)}
    slots["gpu_shared"] = gpu_shared(facts)
    if _OF_GPUS.search(text):
        slots |= {"gpus_shown": gpus_shown(facts), "processes": processes_started(facts)}
    elif _OF_MEMORY.search(text) or "exceeded" in text:
        slots["processes"] = processes_started(facts)
    if origin is not None and "'str'" in text:
        slots["text_setting"] = text_setting(origin, cited, facts)
        slots["text_operand"] = text_operand(text, origin.deepest)
    if origin is not None and "index out of range" in text:
        slots["emptied"] = empty_list(origin)
        slots["fields_of_row"] = fields_of_row(origin)
    if "1-D tensor" in text or "must be 2-D" in text:
        slots["sharded"] = next((m[0] for line in facts.lines if (m := _SHARDED.search(line.text[:MOST_OF_LINE]))), "")
    if "not found" in text:
        slots["lost"] = lost_options(cited, facts)
    if (match := _OPENED.search(text)) and (folders := outer_folder(match[1]))[0]:
        slots |= {"outer": folders[0], "started_in": folders[1]}
    if origin is not None and (match := _COMPARES.match(origin.code)):
        slots |= {"measured": match[1].strip(), "bound": match[2].strip()}
    if origin is not None and origin.own and (match := _APPLIED.match(origin.code)):
        slots["module"] = match[1]
    if origin is not None and not origin.own and not origin.caller and (match := ATTRIBUTE.search(text)):
        slots["unsupported_by"] = origin.library if f"self.{match[1]}" in origin.deepest else ""
    return slots


def _expected(text: str) -> int:
    match = re.search(r"\(expected (\d{1,6})", text)
    return int(match[1]) if match else 0


def _of_shapes(text: str, origin: Origin, subject: str) -> dict[str, str]:
    """Return what the line of source decides of sizes: fewer rows than their place, pairs, a tensor made on the host."""
    slots: dict[str, str] = {}
    if (match := _ROWS.search(text)) and match[2] == match[4] and int(match[1]) < int(match[3]):
        slots |= {"rows": match[1], "room": match[3]}
    if UNPACKED.search(text):
        pairs = next((words for start, words in _PAIRS if re.search(start, subject)), "")
        slots["pairs"] = pairs if names_taken(origin.code) == _expected(text) != 2 else ""
    moved = any(word in origin.code for word in (".to(", ".cuda(", "device"))
    if "same device" in text and not moved and (makers := _MAKES.findall(origin.code)):
        slots["made"] = makers[0]
    if (match := re.search(r"([\w.]{1,120})\(\) takes 0 positional", text)) and "." not in match[1]:
        slots["bare"] = f"{match[1]}()"
    return slots


def _of_origin(text: str, origin: Origin) -> dict[str, str]:
    place = origin.place + (f" in {origin.function}()" if origin.function.isidentifier() else "")
    slots = {"place": place, "code": origin.code if origin.own else ""}
    # where a library raised it, the line of the job's own code does not hold what the message complains of
    subject = subject_named_in(text, origin.code)
    source = origin.code if subject or not (origin.library and origin.own) else ""
    slots |= {"subject": subject or subject_of(text, source, origin.part), "call": _call(text, origin)}
    slots |= _of_shapes(text, origin, slots["subject"])
    if origin.own:
        slots["own"] = place
    if origin.library and origin.deepest_line:
        inner = f"{origin.deepest_file}:{origin.deepest_line}"
        slots["inner"] = f"{inner}, `{origin.deepest}`" if origin.deepest else inner
    if origin.library and origin.own and "UnboundLocalError" in text:
        slots["unset_inside"] = f"{origin.library} ({origin.deepest_file}:{origin.deepest_line})"
    if "next(" in source and "StopIteration" in text:
        slots["exhausted" if "parameters()" in source or "buffers()" in source else "used_up"] = source
    if (match := ATTRIBUTE.search(text)) and f".{match[1]}(" in origin.code:
        slots["method"] = match[1]
    if _ARGUMENT.search(text) and (match := _UNPACKING.search(origin.code)):
        slots["unpacked"] = match[1]
    if "IndexError" in text and (match := _ARGUMENTS.search(source)):
        slots["arguments"] = match[0]
    if "NameError" in text and (match := _EVALUATED.search(origin.code)):
        slots["evaluated"] = match[0]
    slots |= _of_questions(text, origin)
    if "environ" in slots["subject"]:
        slots["environment"] = slots["subject"]
        if (match := KEY.search(text)) and match[1] in _LAUNCHER_SETS:
            slots["launched"] = match[1]
    if "by zero" in text and (match := _DIVISOR.search(source)):
        slots["divisor"] = match[1]
    if match := _COMPARED.match(source):
        whole = match[3].count("(") == match[3].count(")")
        slots |= {"left": match[1], "sign": match[2].strip(), "right": match[3] if whole else "…"}
    elif source.startswith("assert "):
        slots["condition"] = source.removeprefix("assert ")
    return slots


def _of_questions(text: str, origin: Origin) -> dict[str, str]:
    """Return what asked a terminal that a batch job does not have."""
    if not _NO_TERMINAL.search(text):
        return {}
    if "hub.load" in origin.code and "hub" in origin.deepest_file:
        return {"trusted": origin.code}
    if _ASKS.search(origin.code):
        return {"prompt": origin.code}
    return {"asker": origin.library} if _ASKS.search(origin.deepest) or "no-tty" in text else {}


def _of_settings(text: str, origin: Origin | None, cited: Citation, facts: Facts) -> dict[str, str]:
    """Return what the log prints of the settings and packages that a message names, and of ports and workers."""
    printed = settings_named(facts, text, origin.code if origin is not None and origin.own else "", cited.line)
    slots = {"printed": "; ".join(str(value) for value in printed)} if printed else {}
    if "ddress already in use" in text and (port := setting(facts, PORT, cited.line)) is not None:
        slots["port_setting"] = str(port)
    if (_OF_MEMORY.search(text) or _OF_MAPPING.search(text)) and (workers := setting(facts, WORKERS, cited.line)) is not None:
        slots["workers"] = str(workers)
    if (match := _REQUIRED.search(text)) and (version := version_of(facts, match[1], cited.line)) is not None:
        slots["installed"] = str(version)
    return slots


def _call(text: str, origin: Origin) -> str:
    match = _FUNCTION.search(text)
    if match is None:
        return ""
    if match[1] in ("__init__", "__call__", "__new__"):
        return assigned(origin.code)
    words = (match[1] or match[2]).split(".")
    name = words[-2] if words[-1] in ("__init__", "__call__", "__new__") and len(words) > 1 else words[-1]
    return called(origin.code, name)


def _of_library(text: str, origin: Origin, cited: Citation, facts: Facts) -> dict[str, str]:
    slots = {"library": origin.library}
    if (match := _MODULE.search(text)) and origin.library not in ("", match[1]):
        slots |= {"importer": origin.library, "top": match[1]}
    if _ARGUMENT.search(text) and "**" in origin.deepest:
        slots["library"] = ""  # it only hands on what the job's own code named
    if origin.library == "pandas":
        slots["table"] = "table"
    if origin.library and origin.caller and not {origin.library, origin.caller} & sys.stdlib_module_names:
        slots["caller"] = origin.caller
    versions = [str(version) for name in (origin.library, origin.caller) if (version := version_of(facts, name, cited.line))]
    if versions:
        slots["versions"] = ", ".join(versions)
    return slots


def _of_names(text: str, source: str) -> dict[str, str]:
    slots: dict[str, str] = {}
    names = [match[1] for pattern in (ATTRIBUTE, _ARGUMENT) if (match := pattern.search(text))]
    if match := _IMPORTED.search(text):
        names.append(match[1] or match[2])
        if match[2] and (package := package_for(match[2])):
            slots["package"] = package
        if match[2] and match[2].startswith("numpy._core"):
            slots["newer_numpy"] = match[2]
        elif match[2] and "._" in match[2]:
            slots["compiled"] = match[2].partition(".")[0]
    for name in names:
        if rename := successor_of(name, f"{text} {source}"):
            slots |= {
                "successor": rename.now,
                "since": f"{rename.library} {rename.since}" if rename.since[0].isdigit() else rename.since,
            }
            break
    if match := _UNDEFINED.search(text):
        name = match[1]
        slots["module_like"] = name if name.islower() and re.search(rf"(?<![\w.]){re.escape(name)}\.[a-z]\w*\.", source) else ""
        slots["import"] = _ALIASES.get(name) or (f"import {name}" if name in sys.stdlib_module_names else "")
    return slots


def _of_files(text: str, origin: Origin | None, cited: Citation, facts: Facts) -> dict[str, str]:
    match = _MISSING.search(text)
    if match is None:
        return {}
    path = match[1] or match[2]
    apart = hosts_apart(path, facts) if path.startswith("/") else ("", "")
    slots = {"path": path, "missing_on": apart[0], "there_on": apart[1], "doubled": doubled_part(path)}
    slots["absolute_part"] = absolute_part(path, origin.code) if origin is not None else ""
    folder = str(PurePosixPath(path).parent) if "/" in path else ""
    source = f"{origin.code} {origin.deepest}" if origin is not None else ""
    if folder and (_CREATES.search(text) or (_WRITES.search(source) and "load" not in source)):
        before = [line.text for line in facts.lines if cited.file != "job.log" or line.number < cited.line]
        sentence = saved_into(before, folder, path)
        slots |= {"gone": folder, "saved": sentence} if sentence else {"folder": folder}
    shared_folder, shown_path = known_folder(cited, facts)
    if shared_folder:
        slots |= {"folder_there": shared_folder, "file_there": shown_path}
    if not path.startswith(("/", "~")) and path[1:2] != ":":
        slots["relative"] = path
        raised = raised_at(cited, facts)
        files = [frame.file for frame in raised[1].frames] if raised is not None else []
        program = root_of_code(path, [*([origin.file] if origin is not None else []), *files]) or program_folder(cited, facts)
        if not shared_folder and program and origin is not None and origin.own:
            slots |= {"code_folder": program, "beside_code": normpath(f"{program}/{path}")}
    elif origin is not None and origin.own:
        theirs, ours = _HOME.match(path), _HOME.match(origin.file)
        if theirs and (ours is None or theirs[1] != ours[1]):
            slots["foreign"] = theirs[1]
            slots["base"] = str(PurePosixPath(origin.file).parent)
    if re.fullmatch(r"[A-Za-z][\w-]{1,40}", path) and origin is not None and "subprocess" in origin.deepest_file:
        slots["program"] = path
    if not path.isascii() or "\\x" in path:
        slots["letters"] = path
    return slots


def _of_module(text: str, origin: Origin, cited: Citation, facts: Facts) -> dict[str, str]:
    match = _IMPORTED.search(text)
    if match is None or not match[2]:
        return {}
    top = match[2].partition(".")[0]
    parts = origin.file.split("/")
    if not origin.own:
        raised = raised_at(cited, facts)
        served = raised is not None and any(frame.function in _APPLICATION for frame in raised[1].frames)
        return {"application": match[2].replace(".", "/"), "missing_too": file_not_opened(facts, cited.line)} if served else {}
    start, holder = module_holder(top, frames_of(cited, facts))
    if start:  # the folder of the program is on sys.path, and not the one that it was started in
        return {"own_module": top, "run_as": start, "root": "."}
    if holder:
        return {"own_module": top, "root": holder, "inside": f"{holder}/{top}"}
    if base := resolved_folder(origin.file, top, facts):
        return {"own_module": top, "root": base, "inside": f"{base}/{top}"}
    if top in parts[:-1]:
        base = "/".join(parts[: parts.index(top)])
        return {"own_module": top, "root": base or "the folder that holds it"}
    return {"own_module": top, "root": f"the folder that holds {top} (beside or above {origin.file})"} if top in _OWN_NAMES else {}


def _of_asserts(cited: Citation, facts: Facts) -> Mapping[str, str]:
    """Return the first check that failed on a device, of which a later error does not say which, and a warning before it."""
    place, text = (cited.line, cited.text) if "Assertion `" in cited.text else (0, "")
    if not place and not any(words in cited.text for words in ("device-side assert", "CUBLAS_STATUS")):
        return {}
    warned = ""
    lines = [line for line in facts.lines if facts.progress.leg <= line.number <= cited.line + ASSERTS_BEHIND]
    for line in lines:
        if place and line.number >= place:
            break
        if _WARNED.search(line.text):
            warned = f"{cited.file}:{line.number}: {cut(line.text.strip(), MOST_OF_VALUE)}"
        if not place and "Assertion `" in line.text:
            place, text = line.number, line.text
            break
    match = _ASSERTION.search(text)
    if match is None:
        return {}
    refused, compare = refused_by(text)
    return {"assertion": match[1], "asserted": f"{cited.file}:{place}", "refused": refused, "compare": compare, "warned": warned}
