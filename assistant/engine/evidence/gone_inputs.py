"""A path that a job had read before and that was gone when it asked again: no wrong path, but one that went away while it ran.

Proven by the log, which names it as read and counts on behind that; or by the source: the call that did not find it is made anew in
every round of a loop, always for the same path, and the log counts rounds. The job waits for the path and starts again then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.diagnose.readers.rounds import last_count
from assistant.engine.evidence.missing_data import FEWEST_ROUNDS, MISSING_DATA, is_written, nodes_in_words, relative_paths
from assistant.engine.gather import ask, caused_outside
from assistant.errors import NightshiftError
from assistant.logs.lines import Line
from assistant.records import Action, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.job_program import FileReader
from assistant.recover.joblog import log_lines
from assistant.recover.situation import AWAY
from assistant.recover.source.trainer_source import dotted, syntax_tree
from assistant.redact import head_of, redact
from assistant.watch.outages import NOT_THERE, paths_of

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

MOST_NODES, MOST_FRAMES, MOST_OF_LINE, LONGEST_QUOTE = 64, 40, 600, 120
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7}), in (?P<function>[\w<>.]{1,120})')
_READ = re.compile(r"\b(?:read|reading|loaded|loading|opened|opening|parsed|using|rows?|records?|samples?|lines?)\b", re.IGNORECASE)
_FAILED = re.compile(r"error|exception|not found|no such|fail|missing|traceback|cannot|can't", re.IGNORECASE)


_CHANGES = re.compile(
    r"write|save|dump|to_(?:csv|json|parquet)|mkdir|makedirs|touch|rename|replace|remove|unlink|rmtree|move|copy|link|symlink"
)
_BARS = re.compile(r"\b(?:tqdm|trange|track|progress\w*|alive_it)\b")
_WORD = re.compile(r"[a-z]{4,}")
LOOPS = (ast.For, ast.AsyncFor, ast.While)


class TraceLevel(NamedTuple):
    """One level of a traceback."""

    file: str
    line: int
    function: str
    code: str
    """The line of the source as the traceback shows it; empty where it shows none."""


class EarlierReads(NamedTuple):
    """That a job had read a path before it was gone."""

    how: str
    """For people, behind the path: `was read in each round before (search.py:22), until trial 19 of 50`."""
    rounds: int


def with_gone_input(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a path that the job had read before: it waits for it, and starts again then. Else as it is."""
    texts = [cited.text for cited in diagnosis.root_cause]
    is_missing = diagnosis.reason in MISSING_DATA and any(NOT_THERE.search(text) for text in texts)
    if job is None or not is_missing or diagnosis.action is not Action.FIX_AND_RESUBMIT or not 0 < len(job.nodes) <= MOST_NODES:
        return diagnosis
    paths = paths_of(diagnosis.reason, texts) or relative_paths(job, texts)
    if not paths or is_written(texts):
        return diagnosis
    try:
        reads = earlier_reads(list(log_lines(job)), paths[0], FileReader(job.account), str(job.work_dir or ""))
    except (NightshiftError, OSError):
        return diagnosis
    if reads is None:
        return diagnosis
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": list(job.nodes), "paths": list(paths[:1])})
    return with_reads(diagnosis, paths[0], reads, (answer or {}).get("states") or ())


def with_reads(diagnosis: Diagnosis, path: str, reads: EarlierReads, states: Sequence[Mapping[str, Any]]) -> Diagnosis:
    """Return a diagnosis by which a path went away while the job ran; pure.

    Args:
        diagnosis: Of a path that was not found.
        path: The path.
        reads: That the job had read it.
        states: Rows of `storage_state` about it, one of each node of the job.
    """
    answered = [state for state in states if not state.get("silent") and state.get("stands")]
    missing_nodes = [str(state["node"]) for state in answered if state["stands"] != state.get("real")]
    if missing_nodes:
        stands = next(str(state["stands"]) for state in answered if state["node"] == missing_nodes[0])
        now = f"it is still gone on {nodes_in_words(missing_nodes)}, where no more than {stands} stands"
    else:
        now = f"it is there again now, on {nodes_in_words([str(state['node']) for state in answered])}" if answered else ""
    sentence = f"{path} {reads.how}: it went away while the job ran{f'; {now}' if now else ''}."
    advice = (
        f"Start again when {path} is there. {sentence} Nothing has to be changed in the job; if it goes away again, look whether "
        "its file system stays mounted, and who moves or publishes it."
    )
    return caused_outside(diagnosis, sentence, Action.WAIT_AND_RETRY, advice, Whereabouts(f"{AWAY} {path}"))


def earlier_reads(lines: Sequence[Line], path: str, read: Callable[[str], str | None], folder: str) -> EarlierReads | None:
    """Return that a job had read a path before it was gone; None where nothing proves it.

    Args:
        lines: The log of its attempt, in order.
        path: As the error names it, absolute.
        read: Returns the text of a file of the job's owner.
        folder: The job's, from which its sources are named.

    Raises:
        Unavailable: The storage did not answer.
    """
    failed_at = next((place for place, line in enumerate(lines) if _names(line, path) and NOT_THERE.search(line.text)), None)
    if failed_at is None:
        return None
    before = lines[:failed_at]
    count = last_count(before)
    if count is None:
        return None
    naming_lines = [line for line in before if _names(line, path) and _READ.search(line.text) and not _FAILED.search(line.text)]
    for line in naming_lines[:1]:
        went_on = last_count([later for later in before if later.number > line.number])
        if went_on is not None and went_on.number >= FEWEST_ROUNDS:
            quote = head_of(redact(line.text.strip()), LONGEST_QUOTE, "…")
            return EarlierReads(f'was read before ("{quote}"), and the job came to {count} behind that', 1)
    frames = _frames(lines, failed_at)
    if count.number < FEWEST_ROUNDS or not frames:
        return None
    counted = next((line.text for line in before if line.number == count.line), "")
    place = same_path_each_round(frames, counted, read, folder)
    return EarlierReads(f"was read in every round before ({place}), until {count}", count.number) if place else None


def _names(line: Line, path: str) -> bool:
    return len(line.text) <= 20 * MOST_OF_LINE and path in line.text


def _frames(lines: Sequence[Line], failed_at: int) -> list[TraceLevel]:
    """Return the frames of the traceback that a line ends, the outermost first; none where it ends none."""
    frames: list[TraceLevel] = []
    code = ""
    for line in reversed(lines[max(0, failed_at - 4 * MOST_FRAMES) : failed_at]):
        if line.text.rstrip().endswith("Traceback (most recent call last):"):
            return frames[::-1]
        if match := _FRAME.match(line.text[:MOST_OF_LINE]):
            frames.append(TraceLevel(match["file"], int(match["line"]), match["function"], code))
            code = ""
        elif re.search(r"\w", line.text):
            code = line.text.strip()
    return []


def same_path_each_round(frames: Sequence[TraceLevel], counted: str, read: Callable[[str], str | None], folder: str) -> str:
    """Return the place of a call that is made in each round of a loop, for the same path each time; empty where that is not proven.

    From the innermost frame of the owner's own code outwards: what its call is given is followed to constants, to options and to
    names that the loop does not change; no test stands between the loop and the call, and the loop prints what the log counts.

    Args:
        frames: Of a traceback, the outermost first.
        counted: The last line of the log that counts rounds.
        read: Returns the text of a file.
        folder: The job's, from which its sources are named.
    """
    own = list(_own_frames(frames, read, folder))
    calls = list(_calls_at(own[-1].tree, own[-1].frame.line)) if own else []
    if not calls or any(map(_may_write, calls)):
        return ""
    place = f"{PurePosixPath(own[-1].frame.file).name}:{own[-1].frame.line}"
    names = {name for call in calls for name in _names_given(call)}
    is_looped = False
    for depth in range(len(own) - 1, -1, -1):
        frame, tree = own[depth]
        function = _function_at(tree, frame)
        if function is None and frame.function != "<module>":
            return ""
        body = function if function is not None else tree
        around = list(_around(body, frame.line))
        loops = [node for node in around if isinstance(node, LOOPS)]
        names = _origins(body, names)
        if any(names & _changed_in(loop) for loop in loops) or (not is_looped and _is_conditional(around)):
            return ""
        is_looped = is_looped or any(_prints(loop, tree, counted) for loop in loops)
        parameters = names & _parameters(function)
        global_names = names - _parameters(function) - (_changed_in(function) if function is not None else set())
        callers = [
            call
            for call in (_calls_at(own[depth - 1].tree, own[depth - 1].frame.line) if depth else ())
            if dotted(call.func).rpartition(".")[2] == frame.function.rpartition(".")[2]
        ]
        if parameters and not callers:
            return ""
        names = global_names | {name for call in callers for name in _names_handed(call, function, parameters)}
    return place if is_looped else ""


class _OwnFrame(NamedTuple):
    frame: TraceLevel
    tree: ast.Module


def _own_frames(frames: Sequence[TraceLevel], read: Callable[[str], str | None], folder: str) -> Iterator[_OwnFrame]:
    """Yield the frames in sources of the owner's that stand there as the traceback shows them, up to the first that does not."""
    texts: dict[str, str] = {}
    for frame in frames[-MOST_FRAMES:]:
        path = str(PurePosixPath(folder) / frame.file) if folder else frame.file
        if "site-packages" in path or "<" in path or not path.startswith("/") or "/lib/python" in path:
            continue
        texts[path] = texts[path] if path in texts else (read(path) or "")
        lines = texts[path].splitlines()
        if not 0 < frame.line <= len(lines) or (frame.code and not lines[frame.line - 1].strip().startswith(frame.code[:40])):
            return
        yield _OwnFrame(frame, syntax_tree(texts[path]))


def _may_write(call: ast.Call) -> bool:
    """Tell whether a call may make or change the file that it names: its path was never read then."""
    method = dotted(call.func).rpartition(".")[2]
    modes = [*call.args[1:2], *(item.value for item in call.keywords if item.arg == "mode")]
    opened = any(isinstance(mode, ast.Constant) and re.match(r"[rb+t]{0,3}[wxa+]", str(mode.value)) for mode in modes)
    return (method == "open" and opened) or _CHANGES.match(method) is not None


def _is_conditional(around: Sequence[ast.AST]) -> bool:
    """Tell whether a test stands between a statement and the innermost loop around it, else the begin of its function."""
    places = [place for place, node in enumerate(around) if isinstance(node, LOOPS)]
    inner = around[places[-1] + 1 :] if places else around
    tests = [node for node in inner if isinstance(node, ast.If | ast.Match | ast.ExceptHandler)]
    return any(not (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)) for node in tests)


def _prints(loop: ast.AST, tree: ast.Module, counted: str) -> bool:
    """Tell whether a loop draws a bar, or prints, itself or by a function beside it, words of a line that counts."""
    if isinstance(loop, ast.For | ast.AsyncFor) and _BARS.search(ast.unparse(loop.iter)):
        return True
    called = {dotted(node.func).rpartition(".")[2] for node in ast.walk(loop) if isinstance(node, ast.Call)}
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in called
    ]
    texts = [
        node.value
        for part in (loop, *functions)
        for node in ast.walk(part)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    words = {word for text in texts for word in _WORD.findall(text.lower())}
    return bool(words & {*_WORD.findall(counted[:MOST_OF_LINE].lower())})


def _calls_at(tree: ast.AST, line: int) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno) and node.lineno >= line - 3:
            yield node


def _names_given(call: ast.Call) -> set[str]:
    parts = [*call.args, *(item.value for item in call.keywords)]
    parts += [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return {inner.id for part in parts for inner in ast.walk(part) if isinstance(inner, ast.Name)}


def _names_handed(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef | None, parameters: set[str]) -> set[str]:
    """Return the names of which a call makes some parameters of a function; those of all arguments where places are not known."""
    places = [item.arg for item in (*function.args.posonlyargs, *function.args.args)] if function is not None else []
    places = places[1:] if places[:1] in (["self"], ["cls"]) and isinstance(call.func, ast.Attribute) else places
    if any(isinstance(item, ast.Starred) for item in call.args) or any(item.arg is None for item in call.keywords):
        return _names_given(call)
    handed = dict(zip(places, call.args, strict=False)) | {item.arg: item.value for item in call.keywords if item.arg}
    parts = [value for name, value in handed.items() if name in parameters]
    own = {"self"} & parameters and isinstance(call.func, ast.Attribute)
    parts += [call.func.value] if own and isinstance(call.func, ast.Attribute) else []
    return {inner.id for part in parts for inner in ast.walk(part) if isinstance(inner, ast.Name)}


def _function_at(tree: ast.AST, frame: TraceLevel) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == frame.function.rpartition(".")[2]
        and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
    ]
    return functions[-1] if functions else None


def _around(body: ast.AST, line: int) -> Iterator[ast.AST]:
    """Yield the statements around a line inside a function or module, the outermost first; a head of a loop is not inside of it."""
    for child in ast.iter_child_nodes(body):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        first, last = getattr(child, "lineno", None), getattr(child, "end_lineno", None)
        if first is None or last is None or not first <= line <= last:
            continue
        in_head = (
            isinstance(child, ast.For | ast.AsyncFor | ast.If) and child.body and line < child.body[0].lineno and last != first
        )
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case) and not in_head:
            yield child
        yield from _around(child, line)


def _origins(body: ast.AST, names: set[str]) -> set[str]:
    """Return names with all names of which the same function makes them."""
    names = {*names}
    for _ in range(4):
        for node in ast.walk(body):
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
                targets = [node.target]
            else:
                continue
            bound = {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
            if node.value is not None and bound & names:
                names |= {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
    return names


def _changed_in(loop: ast.AST) -> set[str]:
    """Return the names that the rounds of a loop give other values."""
    changed: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            changed.add(node.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            changed |= {node.func.value.id} if node.func.attr in ("pop", "popleft", "append", "get_nowait", "next") else set()
    return changed


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> set[str]:
    if function is None:
        return set()
    arguments = function.args
    parts = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {item.arg for item in parts if item is not None}
