"""Say that compiler and library do not fit, where most errors of a build are the same one inside a file of the library.

A header of MPI, CUDA or conda is no source that the owner of a job can mend, and the line of his own that includes it is right.
What is at fault is the pairing: the library was built with, or for, another compiler than the one that reads it now.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from assistant.diagnose.answer import cut

FEWEST, SHOWN_OF_MESSAGE = 2, 200
"""Errors of one kind that show a pattern, and characters of the message that are shown."""
_VARYING = re.compile(r"\d+|[‘'`\"][^’'`\"]{1,200}[’'`\"]")
_HEADER = re.compile(r"(?:\.(?:h|hh|hpp|hxx|cuh|inl|inc|ipp|tcc|mod|pxd)|/include/(?:\S*/)?[\w+-]+)$")
"""Files that are included, and modules of Fortran: by their ending; headers of C++ have none, but a folder `include`."""
_LIBRARIES = (
    (
        "MPI",
        re.compile(
            r"(?:^|/)mpif?(?:[-_]\w+){0,3}\.(?:h|inc|mod)$|(?:^|/)mpi(?:_\w+)?\.(?:h|mod)$|/(?:openmpi|ompi|mpich|mvapich2?|intelmpi|impi|mpi)[\w.-]*/"
        ),
        "the build of MPI for this compiler, or the compiler that this MPI was built with (mpif90 --showme, mpicc -show and "
        "ompi_info say which), and compile with its wrapper (mpif90, mpicc)",
    ),
    (
        "CUDA",
        re.compile(r"/cuda[\w.-]*/|/nvhpc/|/nvidia/|(?:^|/)(?:cuda|thrust|cub|cutlass)\w*(?:/\S*)?\.(?:h|hpp|cuh)$"),
        "a host compiler that this CUDA takes (its release notes name the newest one; nvcc -ccbin, CUDAHOSTCXX), or another "
        "release of CUDA",
    ),
    (
        "conda",
        re.compile(
            r"(?:^|/)\.?(?:ana|mini)?conda\w*/|/(?:mamba|micromamba|mini)forge\w*/|(?:conda|mamba|forge)[\w.-]*/(?:\S*/)?envs/"
        ),
        "the compilers of the same environment (conda install gxx_linux-64 gfortran_linux-64), or take that environment out of the "
        "search path of headers (CPATH, CPLUS_INCLUDE_PATH, conda deactivate) and build with the system's",
    ),
    (
        "the system or a module",
        re.compile(
            r"^/(?:usr|opt|apps?|software|sw|cm|cvmfs|spack|nix|packages|gnu|lib)\b(?!/(?:users?|home|people)/)"
            r"|/(?:spack|easybuild|site-packages)/|/(?:lib\w*|include)/gcc/"
        ),
        "the build of that library for this compiler, or the compiler that it was built with (module avail, module list), and "
        "take both from one tool chain",
    ),
)
"""By whose files: their paths and names, and what has to be loaded; asked from the top."""


class CompileError(NamedTuple):
    """An error of a compiler with its place in the source."""

    place: str
    words: str
    code: str
    number: int
    """Line of the log."""
    fortran: bool = False


def pairing_account(errors: Sequence[CompileError]) -> str:
    """Return what has to be loaded where compiler and library do not fit; empty where the owner's source may be at fault.

    Args:
        errors: Of one build, in their order; the first and most of them have to be the same one in a file of a library.
    """
    if len(errors) < FEWEST:
        return ""
    kinds = Counter(_VARYING.sub("0", error.words) for error in errors if _library(error) is not None)
    kind, count = next(iter(kinds.most_common(1)), ("", 0))
    first = errors[0]
    library = _library(first)
    if library is None or count < FEWEST or 2 * count <= len(errors) or _VARYING.sub("0", first.words) != kind:
        return ""
    name, remedy = library
    file = first.place.rpartition(":")[0]
    of_include = " `use mpi` in place of include 'mpif.h' goes without that header." if re.search(r"(?:^|/)mpif", file) else ""
    return (
        f"Compiler and library do not fit: {count} of {len(errors)} errors, the first among them, are the same inside {file}, a "
        f"file of {name} ({cut(first.words, SHOWN_OF_MESSAGE).rstrip('.')}, job.log:{first.number}), which this compiler does not "
        f"take. Load {remedy}.{of_include} What comes behind those errors follows from them; the own source needs no change for it."
    )


def _library(error: CompileError) -> tuple[str, str] | None:
    """Return whose file an error stands in, and what has to be loaded; None of a file that may be the owner's.

    A source that is compiled itself is the owner's, wherever it lies.
    """
    file = error.place.rpartition(":")[0]
    if _HEADER.search(file) is None:
        return None
    return next(((name, remedy) for name, pattern, remedy in _LIBRARIES if pattern.search(file)), None)
