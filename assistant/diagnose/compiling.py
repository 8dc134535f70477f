"""Say what a failed build asks for: the header of a standard name, a package of headers, what pip quotes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.records import Citation

BEFORE, BEHIND, MOST_OF_LINE, MOST_LINES_NAMED = 5000, 200, 400, 6
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
BEFORE_QUOTE, LONGEST_QUOTE, SHOWN = 40, 400, 200
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
    telling = next((line for line in reversed(quoted) if _TELLS.match(line.text)), quoted[0])
    lines_before = reversed(facts.between(max(1, cited.line - BEFORE_QUOTE), cited.line))
    built = next((match[1] for line in lines_before if (match := _PACKAGE_BUILT.search(line.text[:MOST_OF_LINE]))), "a package")
    words = cut(telling.text.rstrip("\r␍").strip(), SHOWN).rstrip(".")
    return f"pip could not build {built} (job.log:{telling.number}): {words}."


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
    lines = [line for line in facts.between(max(1, cited.line - BEFORE), cited.line + BEHIND) if "rror" in line.text[:MOST_OF_LINE]]
    for line in lines:
        text = line.text[:MOST_OF_LINE]
        if match := _UNKNOWN_NAME.search(text):
            name = next(group for key in "abcde" if (group := match[key])).removeprefix("std::")
            if name not in HEADERS:
                return ""
            places = [
                each["cuda"] or each["line"]
                for other in lines
                if (each := _UNKNOWN_NAME.search(other.text[:MOST_OF_LINE])) and each["file"] == match["file"] and name in each[0]
            ]
            where = ", ".join(dict.fromkeys(places[:MOST_LINES_NAMED]))
            return (
                f"Add #include {HEADERS[name]} at the head of {match['file']}, which uses {name} without declaring it "
                f"(line {where}; job.log:{line.number}), and build it again; a newer version of that package may have it."
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
