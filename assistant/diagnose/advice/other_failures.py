"""Other failures of the same log: what went wrong before the cited line and may be why, and what followed from it.

Before it may stand an installation, a command of the script, a full memory, or a build with what it asks for (the header of a
standard name, a package of headers, what pip quotes). It is offered as a place to look at first, never as the cause: which line is
the cause was decided before. Behind it come a stop by the scheduler, or another program of the same script.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from assistant.diagnose.advice.decisive import failed_set_up
from assistant.diagnose.advice.families import next_step
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.exceptions import is_slip
from assistant.diagnose.readers.origin import LIBRARY, raised_at
from assistant.diagnose.readers.streams import ended_after_failure
from assistant.diagnose.readers.tracebacks import QUOTING, Episode, EpisodeKind
from assistant.records import Action, Citation, Diagnosis
from assistant.redact import head_of

BUILD_LINES_BEFORE, BUILD_LINES_BEHIND, MOST_OF_BUILD_LINE, MOST_LINES_NAMED = 5000, 200, 400, 6
_UNKNOWN_NAME = re.compile(
    r"(?P<file>[\w./+-]{1,200}\.(?:cu|cuh|cpp|cc|cxx|c|h|hpp))(?:\((?P<cuda>\d{1,6})\)|:(?P<line>\d{1,6})(?::\d{1,4})?): "
    r"(?:fatal )?error: .{0,40}?"
    r"(?:identifier [\"'](?P<a>\w{1,60})[\"'] is undefined"
    r"|[‘'`\"](?P<b>(?:std::)?\w{1,60})[’'\"] (?:was not declared|undeclared|does not name a type)"
    r"|unknown type name [‘'](?P<c>\w{1,60})[’']|use of undeclared identifier '(?P<d>\w{1,60})'"
    r"|[‘'](?P<e>\w{1,60})[’'] is not a member of [‘']std[’'])"
)
_MISSING_HEADER = re.compile(
    r"(?:(?P<file>[\w./+-]{1,200}):(?P<line>\d{1,6})(?::\d{1,4})?: )?fatal error: (?P<header>[\w./+-]{1,120}): No such file"
)
_KILLED = re.compile(r"error: Killed signal terminated program (\w{1,20})")
HEADERS: Mapping[str, str] = {
    **dict.fromkeys("FLT_MAX FLT_MIN FLT_EPSILON DBL_MAX DBL_MIN DBL_EPSILON".split(), "<cfloat> (<float.h> in C)"),
    **dict.fromkeys("INT_MAX INT_MIN UINT_MAX LONG_MAX LONG_MIN LLONG_MAX CHAR_BIT SHRT_MAX".split(), "<climits>"),
    **dict.fromkeys(
        "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t UINT32_MAX INT32_MAX SIZE_MAX".split(),
        "<cstdint>",
    ),
    **dict.fromkeys("memcpy memset memmove memcmp strlen strcmp strncpy strcpy strdup".split(), "<cstring>"),
    **dict.fromkeys("malloc calloc free exit abort getenv atoi atof strtol rand".split(), "<cstdlib>"),
    **dict.fromkeys("printf fprintf snprintf sprintf fopen fclose FILE stderr stdout".split(), "<cstdio>"),
    **dict.fromkeys("sqrt pow fabs exp log floor ceil isnan isinf M_PI INFINITY NAN".split(), "<cmath>"),
    **dict.fromkeys("unique_ptr shared_ptr make_unique make_shared".split(), "<memory>"),
    **dict.fromkeys("sort max_element min_element find_if copy_n".split(), "<algorithm>"),
    **dict.fromkeys("accumulate iota".split(), "<numeric>"),
    **dict.fromkeys("usleep getpid close read write sleep".split(), "<unistd.h>"),
    "numeric_limits": "<limits>",
    "function": "<functional>",
    "optional": "<optional>",
    "string_view": "<string_view>",
    "runtime_error": "<stdexcept>",
    "assert": "<cassert>",
    "PRIu64": "<cinttypes>",
    "thread": "<thread>",
    "mutex": "<mutex>",
}
"""By name: the header of the C++ standard library (ISO C++ 17, index of library names) or of POSIX that declares it."""
_PACKAGES = (
    (re.compile(r"^Python\.h$"), "the headers of Python (python3-dev, python3-devel), or a Python of conda, which has them"),
    (
        re.compile(
            r"^(?:cuda\w*|cusparse\w*|cublas\w*|cusolver\w*|curand\w*|nvToolsExt|nvtx3/.*|thrust/.*|cub/.*)\.(?:h|cuh|hpp)$"
        ),
        "a CUDA toolkit with its headers (CUDA_HOME, module load cuda), of the version that PyTorch was built for",
    ),
    (re.compile(r"^cudnn\w*\.h$"), "cuDNN with its headers"),
    (re.compile(r"^(?:mpi)\.h$"), "an MPI with its headers (module load, libopenmpi-dev)"),
    (re.compile(r"^infiniband/"), "the headers of the verbs (libibverbs-dev, rdma-core-devel)"),
    (re.compile(r"^(?:google|sparsehash)/"), "sparsehash (libsparsehash-dev, google-sparsehash of conda-forge)"),
    (re.compile(r"^Eigen/"), "Eigen (libeigen3-dev, eigen of conda-forge)"),
    (re.compile(r"^libaio\.h$"), "the headers of libaio (libaio-dev, libaio-devel)"),
    (
        re.compile(r"^THC/"),
        "a PyTorch before 1.11, the last with that header, or a version of the extension written for a newer one",
    ),
)


_QUOTED, _QUOTE_ENDS = re.compile(r"\[\d{1,5} lines of output\]"), "[end of output]"
_PACKAGE_BUILT = re.compile(r"(?:Collecting|Building wheels? for|Running setup\.py \w+ for) ([A-Za-z][\w.-]{0,60})")
_TELLS = re.compile(r"^\s*(?:[\w.]{1,80}(?:Error|Exception)\b|(?:fatal )?error:|ERROR\b)")
BEFORE_QUOTE, LONGEST_QUOTE, SHOWN_OF_QUOTE = 40, 400, 200
_NO_VERSION = re.compile(
    r"Could not find a version that satisfies the requirement (?P<wanted>[\w.\[\]=<>!~+-]{2,100})"
    r"(?: \(from (?:versions: )?(?P<versions>[^()]{0,20000})\))?"
)
LINES_OF_PIP = 2000
"""Lines before a missing module among which pip may have refused a requirement."""


def pip_account(cited: Citation, facts: Facts) -> str:
    """Return which package pip could not build and the line of the quoted output that tells why; empty where it quotes none."""
    if cited.file != "job.log" or "subprocess-exited-with-error" not in cited.text:
        return ""
    lines = facts.between(cited.line + 1, cited.line + LONGEST_QUOTE)
    start = next((place for place, line in enumerate(lines[:BEFORE_QUOTE]) if _QUOTED.search(line.text)), None)
    end = next((place for place, line in enumerate(lines) if _QUOTE_ENDS in line.text), len(lines))
    quoted = [line for line in lines[start + 1 : end] if line.text.strip()] if start is not None else []
    if not quoted:
        return ""
    error_line = next((line for line in reversed(quoted) if _TELLS.match(line.text)), quoted[0])
    lines_before = reversed(facts.between(max(1, cited.line - BEFORE_QUOTE), cited.line))
    built = next(
        (match[1] for line in lines_before if (match := _PACKAGE_BUILT.search(line.text[:MOST_OF_BUILD_LINE]))), "a package"
    )
    words = cut(error_line.text.rstrip("\r␍").strip(), SHOWN_OF_QUOTE).rstrip(".")
    return f"pip could not build {built} (job.log:{error_line.number}): {words}."


def requirement_account(cited: Citation, facts: Facts) -> str:
    """Return which requirement pip found no version for before a module was missing; empty where it complained of none."""
    if cited.file != "job.log":
        return ""
    for line in facts.between(max(1, cited.line - LINES_OF_PIP), cited.line - 1):
        match = _NO_VERSION.search(line.text)
        if match is None:
            continue
        versions = [version.strip() for version in (match["versions"] or "").split(",") if version.strip() not in ("", "none")]
        newest = f"; the newest that it can have here is {versions[-1]}" if versions else ""
        return (
            f"Correct the requirement {match['wanted']} (job.log:{line.number}): pip has no such version for this Python and index"
            f"{newest}. It installed nothing of that list, so what is imported later is missing."
        )
    return ""


def compiler_account(cited: Citation, facts: Facts) -> str:
    """Return what the first error of a compiler around a cited line asks for; empty where its words do not decide that."""
    if cited.file != "job.log":
        return ""
    lines = [
        line
        for line in facts.between(max(1, cited.line - BUILD_LINES_BEFORE), cited.line + BUILD_LINES_BEHIND)
        if "rror" in line.text[:MOST_OF_BUILD_LINE]
    ]
    for line in lines:
        text = line.text[:MOST_OF_BUILD_LINE]
        if match := _UNKNOWN_NAME.search(text):
            name = next(group for key in "abcde" if (group := match[key])).removeprefix("std::")
            if name not in HEADERS:
                return ""
            places = [
                finding["cuda"] or finding["line"]
                for line_before in lines
                if (finding := _UNKNOWN_NAME.search(line_before.text[:MOST_OF_BUILD_LINE]))
                and finding["file"] == match["file"]
                and name in finding[0]
            ]
            listed = ", ".join(dict.fromkeys(places[:MOST_LINES_NAMED]))
            return (
                f"Add #include {HEADERS[name]} at the head of {match['file']}, which uses {name} without declaring it "
                f"(line {listed}; job.log:{line.number}), and build it again; a newer version of that package may have it."
            )
        if match := _KILLED.search(text):
            return (
                f"{match[1]}, the compiler, was killed (job.log:{line.number}), mostly for want of host memory: build with fewer "
                "jobs at a time (MAX_JOBS, make -j), or ask for more memory for the build."
            )
        if match := _MISSING_HEADER.search(text):
            package = next((words for pattern, words in _PACKAGES if pattern.search(match["header"])), "")
            at = f", which {match['file']}:{match['line']} includes" if match["file"] else ""
            remedy = (
                f"what is missing is {package}" if package else "add its folder to the include path (CPATH), or install what has it"
            )
            return f"The compiler finds no {match['header']}{at} (job.log:{line.number}): {remedy}; then build it again."
        if re.search(r"\berror: (?!command|subprocess|metadata|legacy)", text):
            return ""
    return ""


SHOWN_OF_LINE, SHOWN_OF_FIRST, LINES_OF_FIRST = 200, 320, 4
FARTHEST_BEFORE, FARTHEST_BEHIND = 5000, 200
"""Lines before the cited one that are looked at; behind it only for what a tool printed."""
_SET_UP = re.compile(
    r"^ERROR: (?:No matching distribution|Could not find a version|Failed (?:building|to build)|Could not open requirements)"
    r"|^ERROR: Cannot install"
    r"|error: subprocess-exited-with-error|(?:conda|mamba|module|source|activate|pip\d?): (?:command )?not found"
    r"|activate: No such file"
    r"|EnvironmentNameNotFound|Could not find conda environment|EnvironmentLocationNotFound|CommandNotFoundError: .{0,60}conda"
    r"|Lmod has detected the following error|Unable to locate a modulefile|ModuleNotFoundError: .{0,40}setup\.py"
)
_STEP = re.compile(
    r"(?:^|[\s/])(?:cp|mv|tar|unzip|wget|curl|cd|mkdir|rsync|scp|git|ln|gzip|aws|gsutil|line \d{1,5}): .{0,200}"
    r"(?:No such file|cannot |[Ff]ailed|error|denied|not found|No space)|^fatal: |CUDA out of memory|torch\.OutOfMemoryError"
    r"|No space left on device|[Dd]isk quota exceeded|: line \d{1,5}:\s+\d+ Killed"
)
_SET_UP_NOUNS = (
    r"(?:samples|images|files|records|rows|examples|items|time series|sequences|batches|documents|videos|graphs|pairs|entries|steps"
    r"|training data)"
)
_EMPTY = re.compile(
    rf"(?<![\d.,/:-])0 {_SET_UP_NOUNS}\b|\b(?:no|No) {_SET_UP_NOUNS} (?:were |was )?(?:found|loaded|left)"
    rf"|(?:[Ll]ength|[Nn]umber|[Nn]um|[Ss]ize|[Cc]ount)\b[^:=]{{0,20}}(?:{_SET_UP_NOUNS}|data ?set)[^:=]{{0,20}}[:=]\s*0\s*$"
    r"|[Ss]teps(?:/| per |_per_)epoch\W{0,4}0\b|across ranks is zero"
)
_COMPILER = re.compile(r"(?:^|\s)(?:fatal )?error: (?!subprocess|metadata|legacy|command )|CMake Error at|undefined reference to")
ANNOUNCES = re.compile(
    r"Caught \w{1,60} in |See root cause above|Failed core proc|data reader raises an exception|detected by the operating system"
    r"|\[SignalInfo: "
)
"""Exceptions that only tell of another one."""
_CONTROL = frozenset(
    {"KeyError", "StopIteration", "AttributeError", "IndexError", "LookupError", "ImportError", "ModuleNotFoundError", "Empty"}
)
"""Exceptions by which programs look whether something is there; what is raised while they are handled tells more."""
LINES_TO_HANDLER = 20
"""Lines of source below the line that raised among which its handler stands."""
SAME_CHARACTERS = 40
"""Characters of a message by which another one repeats it."""
_DIGITS = re.compile(r"\d+")
NAMED_THING = re.compile(r"(?:https?://)?[\w.@-]{2,80}(?:/[\w.@~-]{1,120}){1,12}")
"""Paths, addresses and repositories that a message names."""
SHORTEST_NAME = 8
_ENVIRONMENT = re.compile(r"/envs/[^/]{1,80}/lib/|/\.?v?env[^/]{0,40}/lib(?:64)?/python")
_OF_MACHINES = frozenset({"ecc_error", "nvlink_error", "node_failure", "preempted", "no_failure"})
"""Reasons with which the set-up of the script has nothing to do."""
_NO_NUMBER = re.compile(r"RuntimeWarning: (?:invalid value|overflow|divide by zero) encountered")
"""What NumPy says when a calculation goes wrong and goes on."""
_NO_PROGRAM = re.compile(r"(?:^|/)(?:sh|dash|bash|zsh): (?:(?:line )?\d{1,5}: )?[\w./-]{1,60}: (?:command )?not found")
"""What a shell says of a program that a line of code called through it."""
_EXPLAINING = {
    "called_process_error": (_COMPILER,),
    "import_error": (_SET_UP,),
    "file_not_found_error": (_SET_UP, _STEP),
    "permission_error": (_STEP,),
    "dataset_loading_error": (_STEP, _EMPTY),
    "model_loading_error": (_STEP,),
    "zero_division_error": (_EMPTY,),
    "index_error": (_EMPTY, _NO_NUMBER, _NO_PROGRAM),
    "value_error": (_EMPTY, _NO_NUMBER, _NO_PROGRAM),
    "runtime_error": (_EMPTY,),
    "assertion_error": (_EMPTY, _NO_NUMBER),
    "type_error": (_EMPTY,),
    "attribute_error": (_SET_UP, _EMPTY),
    "key_error": (_EMPTY,),
}
"""By reason: what may have led to it when it stands before it in the same attempt."""


_UNCAUGHT = re.compile(r"[A-Za-z][\w.]{0,80}(?:Error|Exception)(?:: |$)")
_SCRIPT_LINE = re.compile(r"(?:slurm_script|\.(?:sh|slurm|sbatch|pbs|job)): (?:line )?\d{1,6}: ")


def further_lines(diagnosis: Diagnosis, facts: Facts) -> tuple[Citation, ...]:
    """Return lines that belong to a cause beside the cited one: a compiler's first error, what a program died of behind its script.

    The tool that called the compiler only says that it failed; a command that the script lacked lets the program end otherwise.
    """
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    if cited is None or cited.file != "job.log":
        return ()
    numbers: list[int] = []
    if diagnosis.reason == "called_process_error":
        account = re.search(r"job\.log:(\d{1,9})", compiler_account(cited, facts))
        numbers += [int(account[1])] if account is not None else []
    if _SCRIPT_LINE.search(cited.text):
        numbers += [line.number for line in facts.lines if line.number > cited.line and _UNCAUGHT.match(line.text)][-1:]
    lines = [line for number in numbers if (line := facts.line(number)) is not None]
    return tuple(Citation("job.log", line.number, line.text, cited.rule) for line in lines)


def handled_before(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return a sentence about the first exception of the chain that the cited one ends; empty where the cited one is the first."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    raised = raised_at(cited, facts) if cited is not None else None
    if cited is None or raised is None:
        return ""
    first = raised[0].raised[0]
    words = first.message.strip() or first.short
    if first.short in QUOTING or not first.message.strip() or ANNOUNCES.search(first.text):
        return ""
    same = _DIGITS.sub("0", words[:SAME_CHARACTERS])
    is_cited = any(citation.line == first.line or same in _DIGITS.sub("0", citation.text) for citation in diagnosis.root_cause[:1])
    if is_cited or first.line >= cited.line or first.short in _CONTROL:
        return ""
    if not handler_failed(diagnosis, facts) and _same_thing(first.text, cited, facts):
        return ""  # both tell of the same file, address or repository: it is one failure, and the cited one says more
    more = [line.strip() for _, line in first.more[:LINES_OF_FIRST] if line.strip()]
    text = cut(" ".join([facts.streams.body(first.text).text.strip(), *more]), SHOWN_OF_FIRST)
    frame = next((frame for frame in reversed(first.frames) if frame.line and not LIBRARY.search(frame.file)), None)
    place = f", raised from {frame.file}:{frame.line}" if frame is not None else ""
    sentence = f"job.log:{first.line}: {text.rstrip('.')}{place}"
    if handler_failed(diagnosis, facts):
        return f"Mend the error that came first ({sentence}); the cited one came while that was handled."
    account = f"Another error came first ({sentence}), and the cited one while it was handled"
    return f"{account}: mend the first, unless it was expected." if diagnosis.action is Action.FIX_AND_RESUBMIT else f"{account}."


def _same_thing(text: str, cited: Citation, facts: Facts) -> bool:
    """Tell whether a message and the lines of the cited one name the same file, address or repository, or a part of it."""
    nearby_text = " ".join(line.text[:MOST_OF_BUILD_LINE] for line in facts.between(cited.line, cited.line + LINES_OF_FIRST))
    first, second = ([name.rstrip(".") for name in NAMED_THING.findall(words)] for words in (text, nearby_text))
    return any(a.startswith(b) or b.startswith(a) for a in first for b in second if min(len(a), len(b)) >= SHORTEST_NAME)


def handler_failed(diagnosis: Diagnosis, facts: Facts) -> bool:
    """Tell whether the cited exception came while the first of its chain was handled or printed, and not of what the job does."""
    place = raised_at(diagnosis.root_cause[0], facts) if diagnosis.root_cause else None
    if place is None:
        return False
    own = [
        [frame for frame in raised.frames if frame.line and not LIBRARY.search(frame.file)]
        for raised in (place[0].raised[0], place[1])
    ]
    if place[1].frames and place[1].frames[-1].function in ("__repr__", "__str__", "__format__"):
        return place[0].raised[0] is not place[1]  # it came while the first was put into words
    if not own[0] or not own[1]:
        return False
    last = own[1][-1]
    return any((f.file, f.function) == (last.file, last.function) and 0 < last.line - f.line <= LINES_TO_HANDLER for f in own[0])


def explained_by(cited: Citation, facts: Facts) -> set[int]:
    """Return the lines of the exceptions that a cited one explains: of a look-up that it puts into words, and of slips behind it.

    A slip in the handler that was to report the cited one is no cause beside it.
    """
    traceback = raised_at(cited, facts)
    if traceback is None or ANNOUNCES.search(cited.text):
        return set()
    episode, last = traceback
    chain = episode.raised
    slips = {raised.line for at, raised in enumerate(chain) if raised.line > cited.line and is_slip(chain, at)}
    if not last.message.strip() or last.short in _CONTROL:
        return slips
    return slips | {raised.line for raised in episode.raised if raised.line < cited.line and raised.short in _CONTROL}


def look_first(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return a sentence about the earliest line of the same attempt that may be why the cited one came; empty without any."""
    patterns = _EXPLAINING.get(diagnosis.reason, ())
    if (
        diagnosis.root_cause
        and diagnosis.reason not in _OF_MACHINES
        and (words := _set_up(diagnosis.root_cause[0], diagnosis.reason, facts))
    ):
        return words
    if diagnosis.root_cause and diagnosis.reason in ("called_process_error", "runtime_error", "import_error"):
        account = compiler_account(diagnosis.root_cause[0], facts) or pip_account(diagnosis.root_cause[0], facts)
        if account:
            return account
    if not patterns or not diagnosis.root_cause or diagnosis.root_cause[0].file != "job.log" or facts.combined is not None:
        return ""
    cited = diagnosis.root_cause[0]
    line = _earliest(patterns, cited, facts)
    if line is None or line[0] == cited.line:
        return ""
    if (earlier := facts.line(line[0])) is not None and (step := next_step(earlier, facts)):
        return f"Mend first what came before it, for it may be why: {step}"
    origin = "what came before it" if line[0] < cited.line else "what it printed"
    return f"Look first at {origin} (job.log:{line[0]}: {head_of(line[1], SHOWN_OF_LINE, '…')}): it may be why."


def _set_up(cited: Citation, reason: str, facts: Facts) -> str:
    """Return that the environment had not been set up before a cited line, which a restart would meet again."""
    line = failed_set_up(facts, cited.line) if cited.file == "job.log" else None
    if line is None or (reason != "import_error" and _in_environment(cited, facts)):
        return ""
    text = line.text.strip()
    quoted = f"job.log:{line.number}: {head_of(text, SHOWN_OF_LINE, '…')}"
    if reason == "cancelled":
        return f"Its script could not set up its environment ({quoted})."
    how = next((f" ({words})" for pattern, words in _SET_UP_BY if pattern.search(text)), "")
    return (
        f"Mend first what failed in the script before that ({quoted}){how}: the program ran without the environment that is meant."
    )


_SET_UP_BY = (
    (
        re.compile(r"Environment(?:Name|Location)NotFound|Could not find conda environment"),
        "conda env list shows the environments that this account and this conda have: make it, or activate it by its path",
    ),
    (
        re.compile(r"conda|mamba"),
        'source etc/profile.d/conda.sh of the conda installation, or eval "$(conda shell.bash hook)", before conda activate',
    ),
    (re.compile(r"exist but cannot be loaded"), "module spider NAME/VERSION lists which modules have to be loaded before it"),
    (re.compile(r"Lmod has detected|Unable to locate a modulefile"), "module spider NAME, or module avail, shows what there is"),
)
"""By words of what could not set up the environment: how that is done."""


def _in_environment(cited: Citation, facts: Facts) -> bool:
    """Tell whether the traceback of a cited line shows the interpreter of an environment of its own, which was active after all."""
    raised = raised_at(cited, facts)
    return raised is not None and any(_ENVIRONMENT.search(frame.file) for frame in raised[1].frames)


def _earliest(patterns: Sequence[re.Pattern[str]], cited: Citation, facts: Facts) -> tuple[int, str] | None:
    inside = {number for episode in facts.episodes for number in episode.lines}
    for line in facts.lines:
        if line.number >= cited.line + (FARTHEST_BEHIND if _COMPILER in patterns else 0):
            return None
        of_traceback = line.number in inside and "OutOfMemory" not in line.text
        if of_traceback or line.number < max(facts.progress.leg, cited.line - FARTHEST_BEFORE):
            continue
        body = facts.streams.body(line.text[:1000]).text.strip()
        fitting = [pattern for pattern in patterns if pattern.search(body)]
        counts = cited.text.startswith("ZeroDivision") and _EMPTY in fitting  # what is counted later was empty from the start
        if fitting and (counts or facts.progress.before(cited.line) == facts.progress.before(line.number)):
            return line.number, body
    return None


MOST_OF_LINE, MOST_OF_QUOTE = 400, 120
_NOT_THERE = re.compile(r"(?:slurm_script|\.sh|\.sbatch|\.slurm): line (\d{1,6}): (.{1,80}?): command not found")
_DIRECTIVES = frozenset({"SBATCH", "PBS", "BSUB", "$"})
LINES_BEFORE_END = 6
_OVER_LIMIT = re.compile(r"exceeded (?:job |step )?memory limit|[Ee]xceeded .{0,20}memory limit.{0,40}being killed")
_ENDS_STEP = re.compile(
    r"srun: (?:launch/slurm: )?_step_signal: Terminating|srun: Job step aborted: Waiting|srun: Terminating StepId"
)
_CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \d{2,12}\S{0,12} ON \S{1,80} CANCELLED AT \S{10,30}(?P<limit> DUE TO TIME LIMIT)?")


def ended_later(line: int, facts: Facts) -> str:
    """Return that the scheduler ended the job behind a failure, and not the program itself; empty where it did not.

    Args:
        line: Of the failure.
        facts: Of the case.
    """
    if facts.case.job is not None:
        return ""
    for end in reversed(facts.lines[-MOST_OF_LINE:]):
        match = _CANCELLED.search(end.text[:MOST_OF_LINE]) if end.number > line else None
        if match is not None and ended_after_failure(Citation("job.log", end.number, end.text, ""), facts.tasks):
            continue  # nobody did that: a task of the step had failed
        if match is not None and not match["limit"] and _ended_by_slurm(end.number, facts):
            continue  # Slurm itself did: memory went over its limit, or srun ends the step behind a task
        if match is not None and match["limit"]:
            return (
                f"Behind it the job ran into its time limit (job.log:{end.number}): it did not end on that error, so let it exit "
                "there (set -e in the script, no except that goes on)."
            )
        if match is not None:
            return f"Behind it the job was cancelled (job.log:{end.number}): ask its owner, too, before it is started again."
    return ""


def _ended_by_slurm(number: int, facts: Facts) -> bool:
    """Tell whether Slurm says right before a cancellation, or srun around that of a step alone, that it ends it by itself."""
    lines = [line.text[:MOST_OF_LINE] for line in facts.between(max(1, number - LINES_BEFORE_END), number + LINES_BEFORE_END)]
    if any(_OVER_LIMIT.search(text) for text in lines):
        return True
    return any(_ENDS_STEP.search(text) for text in lines) and not any("*** JOB " in text for text in lines)


def script_fault(line: int, facts: Facts, *, of_program: bool) -> str:
    """Return a command of the batch script itself that was not there; empty without one.

    Args:
        line: Of a failure.
        facts: Of the case.
        of_program: Whether the failure is of the code of a program, behind which any command counts; an option of the batch
            system that the script calls as a command counts anywhere.
    """
    for end in facts.lines:
        match = _NOT_THERE.search(end.text[:MOST_OF_LINE])
        if match is not None and match[2] in _DIRECTIVES:
            return (
                f"Line {match[1]} of the batch script wants a # before {match[2]} (job.log:{end.number}): that option, perhaps the "
                "one that asks for memory, time or a GPU, was not asked for."
            )
        if match is not None and of_program and end.number > line:
            return (
                f"The batch script has a fault of its own in line {match[1]} (job.log:{end.number}: {match[2]}: command not found)."
            )
    return ""


def failed_later(cited: Citation, facts: Facts) -> str:
    """Return that another program of the same script failed behind the cited one, for want of what that makes; or empty."""
    if cited.file != "job.log" or facts.combined is not None:
        return ""
    own = next((episode for episode in facts.episodes if episode.first <= cited.line <= episode.last), None)
    program = _program(own)
    for episode in facts.episodes:
        file = _program(episode)
        if own is None or not program or episode.first <= own.last or not file or file == program:
            continue
        raised = episode.raised[-1]
        text = cut(facts.streams.body(raised.text).text.strip(), MOST_OF_QUOTE).rstrip(".")
        name = file.rpartition("/")[2]
        return f"Behind it {name} failed, too (job.log:{raised.line}: {text}): run that again once this is mended."
    return ""


def _program(episode: Episode | None) -> str:
    """Return the file of the program whose main module a traceback begins in; empty for any other."""
    if episode is None or episode.kind is not EpisodeKind.MAIN or episode.stream or not episode.raised[-1].frames:
        return ""
    outermost = episode.raised[-1].frames[0]
    return outermost.file if outermost.function == "<module>" else ""
