"""Say what a check of the job's own code wants, by the form of its condition: a list that is empty, a path, two values, a choice.

`assert` prints at most its message. The condition stands in the line of source, and where the message is made of its parts it has
their values.

An assertion without words (`empty_assertion_account`), as `This line of code cannot be reached`, tells nothing of its own. In the
stack behind it the frames of the machinery that raised it come first, then the function whose author took that branch for
impossible, further out the owner's script. A name like `_solve_nr!` of a `NewtonRaphsonSolver` says that an iteration ended without
a solution.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assistant.diagnose.advice.decisive import filled_fields
from assistant.diagnose.advice.demands import demand_of
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import named_setting
from assistant.diagnose.readers.origin import message_of, origin_of
from assistant.records import Citation
from assistant.recover.source.trainer_source import UNPARSED, syntax_tree

SHOWN_OF_VALUE, MOST_CHOICES, MOST_OF_SOURCE = 160, 8, 400
"""Characters of a value that are shown, choices of a list, and characters of a line of source that are read."""
ANY_CHECK = "The check `"
"""With which the entry begins that fits any check."""
_PATH = re.compile(r"(?:^|[\s'\"(=:])((?:\.{0,2}/|~/)?[\w.@+~-]{1,80}(?:/[\w.@+=~-]{1,80})+/?)(?=$|[\s'\"),;:.])")
_EXISTS = {
    "exists": "nothing",
    "isfile": "no file",
    "is_file": "no file",
    "isdir": "no folder",
    "is_dir": "no folder",
    "lexists": "nothing",
}
_COUNT = ast.Gt | ast.NotEq | ast.GtE


class _Check(NamedTuple):
    condition: ast.expr
    message: ast.expr | None


def assertion_account(cited: Citation, facts: Facts) -> str:
    """Return what a check of the job's own code wants changed; empty where its condition has no form that tells it."""
    origin = origin_of(cited, facts)
    if origin is None or not origin.own or not origin.code.startswith("assert "):
        return ""
    check = _parsed(origin.code[:MOST_OF_SOURCE])
    if check is None:
        return ""
    place = f"{origin.file}:{origin.line}" + (f" in {origin.function}()" if origin.function.isidentifier() else "")
    message = " ".join(message_of(cited, facts)[:2]).partition("AssertionError")[2].lstrip(": ").strip()
    for form in (_empty, _absent, _gpu, _choice, _compared):
        if words := form(check, message, place, cited, facts):
            return words
    return ""


def _parsed(code: str) -> _Check | None:
    """Return condition and message of an `assert`; of one that goes on in the next line what stands in this one."""
    for text in (code, code.rstrip(", \\("), f"{code.rstrip(', ')})", code.rpartition(",")[0]):
        try:
            statement = syntax_tree(text).body
        except UNPARSED:
            continue
        if statement and isinstance(statement[0], ast.Assert):
            return _Check(statement[0].test, statement[0].msg)
    return None


def _empty(check: _Check, message: str, place: str, _cited: Citation, _facts: Facts) -> str:
    """Return what to look for where the length of something has to be more than nothing."""
    node: ast.expr = check.condition
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], _COUNT):
        bound = node.comparators[0]
        least = 1 if isinstance(node.ops[0], ast.GtE) else 0
        node = node.left if isinstance(bound, ast.Constant) and bound.value == least else node
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1):
        return ""
    path = _PATH.search(message)
    search_place = (
        f"list {path[1]} (ls): it holds none of what is looked for there"
        if path
        else "list the folder or print the source that fills it"
    )
    quoted = f" ({cut(message, SHOWN_OF_VALUE)})" if message else ""
    return (
        f"`{ast.unparse(node.args[0])}` is empty at {place}{quoted}: {search_place}, or the pattern, filter or split by "
        "which it is chosen fits nothing. Correct the path or the pattern, or let the step run first that makes it."
    )


def _absent(check: _Check, message: str, place: str, cited: Citation, facts: Facts) -> str:
    """Return which path has to be there."""
    call = check.condition
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _EXISTS):
        return ""
    argument = call.args[0] if call.args else call.func.value
    name = ast.unparse(argument)
    path = _PATH.search(message)
    path_there = path[1] if path else ""
    setting = (
        named_setting(facts, name.rpartition(".")[2], cited.line) if not path_there and re.fullmatch(r"[\w.]{2,80}", name) else None
    )
    name_there = f"{path_there} ({name})" if path_there else f"`{name}`"
    by = f", which is {setting.value} (job.log:{setting.line})" if setting is not None else ""
    return (
        f"There is {_EXISTS[call.func.attr]} at {name_there}{by}, as {place} checks: correct the option or variable that gives it, "
        f"put there what "
        "is missing, or let the step run first that makes it. A relative path is seen from the folder in which the program "
        "was started."
    )


def _gpu(check: _Check, _message: str, place: str, _cited: Citation, _facts: Facts) -> str:
    """Return what to look at where the program wants a GPU and PyTorch sees none."""
    if ast.unparse(check.condition) not in ("torch.cuda.is_available()", "cuda.is_available()"):
        return ""
    return (
        f"PyTorch sees no GPU, and {place} wants one: ask for one (--gres=gpu:1), and look in the job at nvidia-smi, at "
        "CUDA_VISIBLE_DEVICES, and at python -c 'import torch; print(torch.version.cuda)', which says None of a build for the "
        "CPU, and has "
        "to be no newer than what the driver takes."
    )


def _choice(check: _Check, message: str, place: str, _cited: Citation, _facts: Facts) -> str:
    """Return which values a choice allows, and the one that was given."""
    test = check.condition
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In)):
        return ""
    if not isinstance(test.comparators[0], ast.Tuple | ast.List | ast.Set):
        return ""
    choices = [ast.unparse(item) for item in test.comparators[0].elts][:MOST_CHOICES]
    value = _value_of(test.left, check, message)
    is_now = f"; it is {cut(value, SHOWN_OF_VALUE)}" if value else ""
    return f"Set {ast.unparse(test.left)} to one of {', '.join(choices)}{is_now}: {place} takes no other."


def _compared(check: _Check, message: str, place: str, cited: Citation, facts: Facts) -> str:
    """Return the two sides of a comparison with their values; empty where the message has neither."""
    test = check.condition
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1) or demand_of(cited, facts):
        return ""  # the message itself says which number is beyond which
    left_side, right_side = test.left, test.comparators[0]
    multiple = (
        isinstance(left_side, ast.BinOp)
        and isinstance(left_side.op, ast.Mod)
        and isinstance(right_side, ast.Constant)
        and right_side.value == 0
    )
    sides = [left_side.left, left_side.right] if multiple and isinstance(left_side, ast.BinOp) else [left_side, right_side]
    values = [(ast.unparse(side), _value_of(side, check, message)) for side in sides]
    shown_values = [f"{name} is {cut(value, SHOWN_OF_VALUE)}" for name, value in values if value]
    if not shown_values:
        return ""
    if multiple and isinstance(test.ops[0], ast.Eq):
        want = f"{values[0][0]} has to be a multiple of {values[1][0]}"
    else:
        want = f"`{ast.unparse(test)}` has to hold"
    return (
        f"{want}, and {' and '.join(shown_values)} ({place}): change the one that is not as it was meant, where it is set or made."
    )


def _value_of(side: ast.expr, check: _Check, message: str) -> str:
    """Return the value that the message shows of an expression; empty where it shows none."""
    if check.message is None or not message:
        return ""
    if ast.unparse(check.message) == ast.unparse(side):
        return message
    if not isinstance(check.message, ast.JoinedStr):
        return ""
    fields = {_plain(field.expression): field.value for field in filled_fields(f"({ast.unparse(check.message)})", message)}
    return fields.get(_plain(ast.unparse(side)), "")


def _plain(expression: str) -> str:
    return re.sub(r"[\s'\"]|[:!][^\[\](){}]{1,12}$", "", expression)


LINES_BEHIND, MOST_OF_LINE, MOST_OF_NAME, FEWEST_WORDS = 80, 2000, 100, 2
WITHOUT_WORDS = "The message has no words of its own"
_EMPTY = re.compile(
    r"\b(?:line of )?code (?:cannot|can not|can't|could not|should (?:not|never)|must (?:not|never)) be (?:reached|executed)"
    r"|\bentered unreachable code\b"
    r"|\b(?:reached |executed )?unreachable(?: code| branch| statement)?(?: (?:executed|reached|entered))?\W*$"
    r"|\b[Aa]ssertion (?:failed|failure)(?: in)?\W*$"
    r"|Assertion [`'\"‘]?\(?!?\(?(?:0|1|false|true|FALSE|NULL|nullptr|unreachable|\"?unreachable\"?)\)?\)?['\"’]? failed"
    r"|\bshould (?:not|never) (?:get|be|have (?:got|come)) here\b|\bshould never happen\b|\bNOT_?REACHED\b"
    r"|\bthis (?:is|was) (?:a bug|impossible)\W*$",
    re.IGNORECASE,
)
"""What an assertion says that says nothing of what went wrong."""
_FRAMES = (
    re.compile(
        r"^\s*\[(?P<depth>\d{1,3})\] (?P<function>macro expansion|top-level scope|\(::[^)]{1,200}\)|[^\s(]{1,200}?)"
        r"(?P<arguments>\(.{0,1900}?\)?)?(?: at (?P<file>\S{1,300}?):(?P<line>\d{1,7}))?(?: \[inlined\])?\s*$"
    ),
    re.compile(
        r"^\s*(?P<depth>\d{1,3}): +(?:0x[0-9a-f]{6,16} - )?"
        r"(?P<function>[A-Za-z_<][^\s(]{1,300})(?P<arguments>)(?P<file>)(?P<line>)\s*$"
    ),
    re.compile(
        r"^\s*#(?P<depth>\d{1,3})\s+(?:0x[0-9a-f]{2,16} in )?(?P<function>[\w:~<>*&, ]{1,200}?) ?(?P<arguments>\(.{0,400}\))"
        r"(?: at (?P<file>[\w./+-]{1,300}):(?P<line>\d{1,7}))?"
    ),
)
_PLACE_BELOW = re.compile(
    r"^\s+(?:@ (?:[\w.]{1,120} )?|at )(?P<file>[^\s:]{1,300}):(?P<line>\d{1,7})(?::\d{1,5})?(?: \[inlined\])?\s*$"
)
_OF_C = re.compile(
    r"(?P<file>[\w./+-]{1,300}\.\w{1,4}):(?P<line>\d{1,7}): (?P<function>[^:]{1,300}(?:::[^:]{1,300}){0,6}): Assertion "
)
_STARTED_AT = re.compile(r"^in expression starting at (?P<file>\S{1,300}):(?P<line>\d{1,7})")
_MACHINERY = re.compile(
    r"^(?:error|throw\w*|rethrow|macro expansion|top-level scope|include|_include|exec_options|_start|main|kwcall|collect|iterate"
    r"|_?_?assert\w*|__assert_fail\w*|abort|raise|gsignal|backtrace|panic\w*|rust_begin_unwind|rust_panic|\(::.*|__libc_start\w*|\?\?"
    r"|core::panicking\S*|core::result\S*|core::option\S*|std::\S*|__GI_\S*|__pthread\S*|\w*unreachable\w*|\w*_fail(?:ed)?)$"
)
_LIBRARY = re.compile(
    r"\.julia/(?:packages|dev|juliaup|artifacts)/|^\./|^none$|/share/julia/|/rustc/|\.cargo/|/site-packages/|/dist-packages/|^/usr/"
    r"|^/opt/|^/lib|/include/|conda\w*/|/spack/|/apps/|/software/|REPL\[|^~/\.julia"
)
_CLASS = re.compile(
    r"\b(?P<name>(?:[A-Z][a-z0-9]+){1,6}(?:Solver|Method|Optimi[sz]er|Integrator|Stepper|Parser|Reader|Loader|Decoder|Sampler|Iterator|Search))\b"
)
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[_!:.<>~]+")
_MEANINGS = (
    (
        "solve solver nr newton raphson krylov gmres cg bicgstab iterate iteration iterations converge convergence relax picard "
        "fixedpoint bisect bisection brent root linesearch minimize minimise optimize optimise optimizer sweep scf",
        "the iteration came to its end without a solution that it accepts (it did not converge): allow more iterations or a looser "
        "tolerance, turn a line search or damping on, take a smaller step or better start values, and print the residual of each "
        "iteration, which shows whether it falls, stalls or is NaN",
    ),
    (
        "step stepper advance integrate integrator propagate evolve march substep",
        "a step of the integration did not succeed: take a smaller step or a looser tolerance, and print what goes into that step",
    ),
    (
        "parse parser read reader load loader decode decoder lex lexer token tokenize scan deserialize unpack header",
        "what it read has a form that its author did not expect: look at the input that is read there (another version, an empty "
        "or cut file, another kind of record)",
    ),
    (
        "convert cast promote dispatch switch select visit match kind type enum encode map lookup",
        "a value or kind came in that none of its branches takes: print what is handed to it, and look which option "
        "or input gives it",
    ),
    (
        "send recv receive exchange gather scatter reduce barrier comm communicate partition distribute",
        "the processes do not agree on what they exchange: compare their number and the split of the data with what "
        "the input wants",
    ),
)
"""By words of a name: what it means that such a function came to a branch that cannot be."""
_ANY_CASE = "what came in, or what it computed, is a case that its author had not thought of: print what is handed to it there"


class StackFrame(NamedTuple):
    """A frame of a stack of any runtime."""

    function: str
    arguments: str
    file: str
    line: int
    number: int
    """Line of the log."""

    @property
    def place(self) -> str:
        """File and line; empty where the stack has none."""
        return f"{self.file}:{self.line}" if self.file else ""


def empty_assertion_account(cited: Citation, facts: Facts) -> str:
    """Return what an assertion without words means by the function that it stands in; empty of other lines and without a stack."""
    text = facts.streams.body(cited.text[:MOST_OF_LINE]).text if cited.file == "job.log" else ""
    if not text or _EMPTY.search(text) is None:
        return ""
    frames = list(_frames(cited, text, facts))
    at = next((place for place, frame in enumerate(frames) if not _MACHINERY.match(_bare(frame.function))), None)
    if at is None:
        return ""
    frame = frames[at]
    meaning, kind = _meaning(frame)
    of_kind = f" of {kind}" if kind else ""
    stands = f" ({frame.place}, job.log:{frame.number})" if frame.place else f" (job.log:{frame.number})"
    job_place = _own_place(frames[at:], cited, facts)
    reached = (
        f" It is reached from {job_place}: change it there, or in what that hands over."
        if job_place and job_place.partition(" ")[0] != frame.place
        else ""
    )
    return (
        f"{WITHOUT_WORDS}; the function above it has: {_bare(frame.function)[:MOST_OF_NAME]}{of_kind}{stands} came to "
        f"a branch that its author took for impossible, so {meaning}.{reached}"
    )


def _frames(cited: Citation, text: str, facts: Facts) -> Iterator[StackFrame]:
    """Yield the frames behind a cited line, innermost first; of an assertion of C the one in its message before them."""
    if (match := _OF_C.search(text)) is not None:
        yield StackFrame(
            match["function"].partition("(")[0].split()[-1], match["function"], match["file"], int(match["line"]), cited.line
        )
    lines = facts.between(cited.line + 1, cited.line + LINES_BEHIND)
    texts = [facts.streams.body(line.text[:MOST_OF_LINE]).text.rstrip() for line in lines]
    depth = -1
    for place, (line, body) in enumerate(zip(lines, texts, strict=True)):
        printed = (body, line.text[:MOST_OF_LINE].rstrip())  # the number of a frame may look like that of a rank
        match = next((match for form in _FRAMES for variant in printed if (match := form.match(variant)) is not None), None)
        if match is None or int(match["depth"]) <= depth:
            continue
        depth = int(match["depth"])
        below = _PLACE_BELOW.match(texts[place + 1]) if place + 1 < len(texts) and not match["file"] else None
        file, number = (match["file"], match["line"]) if match["file"] else (below["file"], below["line"]) if below else ("", "0")
        yield StackFrame(match["function"], match["arguments"] or "", file, int(number), line.number)


def _bare(function: str) -> str:
    """Return a function's name without the hash that Rust puts behind it."""
    return re.sub(r"::h[0-9a-f]{8,20}$", "", function.strip())


def _meaning(frame: StackFrame) -> tuple[str, str]:
    """Return what a function's name says, and the class among its arguments that says it more clearly; empty where none does."""
    kind = next((match["name"] for match in _CLASS.finditer(frame.arguments)), "")
    words = {word.lower() for name in (frame.function, kind) for word in _HUMPS.split(name) if len(word) >= FEWEST_WORDS}
    return next((meaning for names, meaning in _MEANINGS if words & set(names.split())), _ANY_CASE), kind


def _own_place(frames: Sequence[StackFrame], cited: Citation, facts: Facts) -> str:
    """Return the innermost place that is in no folder of a library, or where the runtime says that the script was; or empty."""
    job_frame = next((frame for frame in frames if frame.file and not _LIBRARY.search(frame.file)), None)
    if job_frame is not None:
        return f"{job_frame.place} (job.log:{job_frame.number})"
    lines = facts.between(cited.line + 1, cited.line + LINES_BEHIND)
    start = next(((match, line) for line in lines if (match := _STARTED_AT.match(line.text[:MOST_OF_LINE]))), None)
    return f"{start[0]['file']}:{start[0]['line']} (job.log:{start[1].number})" if start is not None else ""
