"""A precursor job, `python -m assistant.evaluation.stage JOB`: copy a model from remote storage into a node's memory, once a node.

Whoever needs the model takes its lock. The first process copies, all others find it there, whole and compared with what it should
be. A copy that crashed holds no lock, so the next process begins anew. `JobContext` is what every job of a run (precursor, trial,
metric) reads of its own folder and tells the coordinator.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.errors import ContentError
from assistant.evaluation import model_cache
from assistant.evaluation.files import RunFolder, claim, read_json, write_json
from assistant.evaluation.model_cache import KEEP_S, RESERVE_BYTES, FileEntry, Shelf, WrongContent, room, size_text
from assistant.evaluation.sandbox import ProgramLimits, SandboxedProgram
from assistant.private_files import private_folder

FETCH_S = 6 * 3600.0
"""How long a fetch command may take; the precursor's own time limit is shorter as a rule."""
READERS = 4
"""Files that are read side by side."""


class StagingError(Exception):
    """A model could not be put into the memory of this node; `kind` tells what may help."""

    def __init__(self, kind: str, message: str) -> None:
        """Build it.

        Args:
            kind: `room` (another node), `content` or `source` (look at the storage).
            message: For people.
        """
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Model:
    """A model at its source."""

    source: str
    """A path, or what the fetch command calls it."""
    fetch: str = ""
    """Command that copies it, with {source} and {target}; empty: we copy the path ourselves."""
    size_bytes: int | None = None
    """Where the source cannot be asked; else its files are."""
    limit_bytes: int | None = None
    """What the site allows in a node's memory."""
    digests: str = ""
    """File of a run in which the first copy writes what it read, for the others to compare; empty where there is none."""

    mark: str = ""
    """Tells this content from another one under the same name; see `mark_of`."""

    @property
    def key(self) -> str:
        """Name of its place in a node's memory: other content, other place. The source is not asked for it."""
        return hashlib.blake2b("\n".join([self.source, self.fetch, self.mark]).encode(), digest_size=10).hexdigest()


def mark_of(source: Path) -> str:
    """Return what tells the files of a model from those that were there before: names, sizes, times.

    Raises:
        OSError: They cannot be listed.
    """
    base = source.parent if source.is_file() else source
    times = (
        f"{name} {entry.size} {(base / name).stat().st_mtime_ns}" for name, entry in sorted(model_cache.listing(source).items())
    )
    return hashlib.blake2b("\n".join(times).encode(), digest_size=10).hexdigest()


@dataclass(frozen=True, slots=True)
class Staged:
    """A model in the memory of this node."""

    path: Path
    size_bytes: int
    seconds: float
    """Of the copy; 0 where it lay there already."""
    fetched: bool


def stage(model: Model, shelf: Shelf, run: str, *, keep_s: float = KEEP_S) -> Staged:
    """Make sure that a model lies in this node's memory and is ordered by a run; waits while another process copies it.

    Raises:
        StagingError: It does not fit, cannot be read, or is not what it should be; nothing of it is left.
    """
    shelf.sweep()
    try:
        with shelf.lock_folder(model.key) as folder:
            model_path = shelf.model(model.key)
            if model_path is not None:
                staged = Staged(model_path, (read_json(folder / "whole.json") or {}).get("size", 0), 0.0, fetched=False)
            else:
                staged = _copied(model, folder)
            shelf.order(model.key, run, keep_s=keep_s)
            return staged
    except StagingError:
        shelf.sweep()
        raise


@contextmanager
def staged_for(model: Model, shelf: Shelf, run: str) -> Iterator[tuple[Path, Staged]]:
    """Use a model from this node's memory, put there first where it is missing.

    Raises:
        StagingError: It cannot be put there.
    """
    while True:
        staged = stage(model, shelf, run)
        try:
            with shelf.use_folder(model.key, run) as path:
                yield path, staged
                return
        except FileNotFoundError as error:
            if str(shelf.folder(model.key)) not in str(error):
                raise  # not ours: what the reader itself could not find


def _copied(model: Model, folder: Path) -> Staged:
    start = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    name = Path(model.source).name or "model"
    part = folder / f"part.{os.getpid()}.{time.monotonic_ns()}"  # a writer that outlived its precursor must not meet ours
    try:
        listed = model_cache.listing(Path(model.source)) if not model.fetch else None
    except OSError as error:
        raise StagingError("source", f"model {model.source} cannot be read: {error}") from error
    size = model_cache.total(listed) if listed is not None else model.size_bytes
    _fits(model, folder, size)
    private_folder(part)
    try:
        if listed is None:
            read = _fetched(model, part / name)
        else:
            alone = Path(model.source).is_file()
            read = _files_copied(Path(model.source), part if alone else part / name, listed)
            model_cache.compare(read, listed)
        _as_others_read(model, read)
    except WrongContent as error:
        raise StagingError("content", f"model {model.source} was not copied whole: {error}; nothing of it was kept") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StagingError("room", _no_room(model, size, folder)) from error
        raise StagingError("source", f"model {model.source} cannot be copied: {error}") from error
    part.rename(folder / "model")
    write_json(folder / "whole.json", {"name": name, "size": model_cache.total(read)})
    return Staged(folder / "model" / name, model_cache.total(read), time.monotonic() - start, fetched=True)


def _fits(model: Model, folder: Path, size: int | None) -> None:
    if size is not None and size + RESERVE_BYTES > room(folder, allowed_bytes=model.limit_bytes).free_bytes:
        raise StagingError("room", _no_room(model, size, folder))


def _no_room(model: Model, size: int | None, folder: Path) -> str:
    limit = room(folder, allowed_bytes=model.limit_bytes)
    need = f"needs {size_text(size)} and {size_text(RESERVE_BYTES)} to spare" if size is not None else "is larger than that"
    return (
        f"model {model.source} does not fit into the memory of this node: {limit.name} leaves {size_text(limit.free_bytes)}, it "
        f"{need}. Free memory, ask for more of it, or read the model from storage with --from-storage"
    )


def _files_copied(source: Path, target: Path, files: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """Copy files, several at a time, each read back and compared; return what was read."""

    def copy_entry(name: str) -> tuple[str, FileEntry]:
        origin = source if source.is_file() else source / name
        return name, _file_copied(origin, target / name, files[name].digest)

    largest_first = sorted(files, key=lambda name: -files[name].size)
    with ThreadPoolExecutor(min(READERS, len(files))) as readers:
        return dict(readers.map(copy_entry, largest_first))


def _file_copied(origin: Path, target: Path, expected: str) -> FileEntry:
    target.parent.mkdir(parents=True, exist_ok=True)
    part_path = target.with_name(f"{target.name}.part")
    digest, size = model_cache.new_digest(expected), 0
    with origin.open("rb") as file, part_path.open("wb") as copy:
        while block := file.read(model_cache.BLOCK):
            digest.update(block)
            copy.write(block)
            size += len(block)
    read = model_cache.digest_with_kind(digest)
    if model_cache.digest_of(part_path, read) != read:
        raise WrongContent(f"{target.name} reads otherwise from this node's memory than it was written")
    part_path.replace(target)
    return FileEntry(size, read)


def _fetched(model: Model, target: Path) -> dict[str, FileEntry]:
    """Run the site's command and return what it brought; it is ended when it brings more than fits, and when we are."""
    words = argv(model.fetch, {"source": model.source, "target": str(target)}, "fetch command")
    with tempfile.TemporaryDirectory(prefix="nightshift-fetch-") as scratch:
        program = SandboxedProgram(words, ProgramLimits(wall_s=FETCH_S, closed=False), folder=Path(scratch))
        while (ended := program.wait(0.2)) is None:
            if room(target.parent, allowed_bytes=_bytes_left(model, target)).free_bytes < RESERVE_BYTES:
                program.kill()
                raise StagingError("room", _no_room(model, None, target.parent))
    if not ended.ok:
        raise StagingError("source", f"fetch command {words[0]!r} failed: {ended.why}")
    try:
        entries = model_cache.listing(target)
    except FileNotFoundError:
        raise StagingError("source", f"fetch command {words[0]!r} ended well and left nothing at {target}") from None
    base = target if target.is_dir() else target.parent
    return {name: FileEntry(entry.size, model_cache.digest_of(base / name, entry.digest)) for name, entry in entries.items()}


def _bytes_left(model: Model, target: Path) -> int | None:
    """Return how much of the site's limit what lies there has left; None without a limit."""
    if model.limit_bytes is None:
        return None
    try:
        return model.limit_bytes - model_cache.total(model_cache.listing(target))
    except OSError:
        return model.limit_bytes


def _as_others_read(model: Model, read: Mapping[str, FileEntry]) -> None:
    """Compare with what the first copy of this run read, or be the first.

    Raises:
        WrongContent: Another node read something else.
    """
    if not model.digests:
        return
    import json

    own_digests = json.dumps({name: [entry.size, entry.digest] for name, entry in sorted(read.items())})
    first = json.loads(claim(Path(model.digests), own_digests))
    try:
        model_cache.compare(read, {name: FileEntry(size, digest) for name, (size, digest) in first.items()})
    except WrongContent as error:
        raise WrongContent(f"another node of this run read it otherwise: {error}") from error


# Commands of a suite: templates whose values never meet a shell, and the command lines of known evaluators.
#
# A template is split into words first and filled in afterwards, so a value with blanks or quotes stays one word. `{{x}}` stands
# for
# `{x}` itself; braces around anything but a name, as in JSON, stay as they are.

NAME = re.compile(r"\{\{(\w+)\}\}|\{([a-z_]+)\}")


def argv(template: str, values: Mapping[str, str], source: str) -> list[str]:
    """Return the words of a command.

    Args:
        template: As a shell would read it, without its substitutions.
        values: By name.
        source: What it is the command of, for the message.

    Raises:
        ContentError: It is no command, or names a value that there is none of.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise ContentError(f"{source}: {template!r} is no command line: {error}") from error
    if not words:
        raise ContentError(f"{source}: the command is empty")

    def filled(match: re.Match[str]) -> str:
        if match.group(1):
            return f"{{{match.group(1)}}}"
        if match.group(2) not in values:
            raise ContentError(f"{source}: {{{match.group(2)}}} is unknown; known: {', '.join(f'{{{name}}}' for name in values)}")
        return values[match.group(2)]

    return [NAME.sub(filled, word) for word in words]


FAILED, NOT_OURS = 1, 0
"""Exit statuses; a job that finds its work done by another leaves well."""


class JobContext:
    """A job's folder and what stands in it."""

    def __init__(self, folder: Path) -> None:
        """Read the job's folder.

        Raises:
            SystemExit: The folder holds nothing of the kind.
        """
        spec = read_json(folder / "job.json")
        if spec is None:
            raise SystemExit(f"{folder} holds no job.json: it must be started by nightshift evaluate")
        self.folder = folder
        self.spec: dict[str, Any] = spec
        self.number: int = spec["number"]
        self.run = RunFolder(folder.parent.parent)
        self.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.job_id = os.environ.get("SLURM_JOB_ID", str(os.getpid()))
        self.began_at = time.time()

    def is_mine(self) -> bool:
        """Whether this job, and no other that was submitted for the same, does the work. The same job may begin again."""
        return claim(self.folder / "owner", self.job_id) == self.job_id

    def tell(self, phase: str, **more: object) -> None:
        """Write the job's status for the coordinator."""
        status = {"phase": phase, "node": self.node, "job": self.job_id, "begun": self.began_at, "at": time.time(), **more}
        write_json(self.folder / "status.json", status, durable=False)

    @property
    def model(self) -> Model:
        """The model."""
        return Model(**self.spec["model"])

    @property
    def shelf(self) -> Shelf:
        """The models in this node's memory."""
        return Shelf(self.memory)

    @property
    def memory(self) -> Path:
        """The folder in this node's memory that is ours."""
        return Path(self.spec["memory"].replace("{node}", self.node))

    @property
    def cache(self) -> Path:
        """A folder on this node for prepared data of the run; it goes with the run."""
        return self.memory / "prepared" / self.run.id


def main(folder: Path) -> int:
    """Do what the job's folder says and return the exit status; how it went is in the run's folder."""
    work = JobContext(folder)
    if work.spec["kind"] == "clean":
        return _clean(work)
    work.tell("staging")
    report: dict[str, object] = {"node": work.node, "job": work.job_id}
    try:
        staged = stage(work.model, work.shelf, work.run.id)
    except StagingError as error:
        write_json(work.run.node(work.node), {**report, "ok": False, "kind": error.kind, "why": str(error)})
        print(f"{work.node}: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return FAILED
    report |= {"ok": True, "seconds": staged.seconds, "size_bytes": staged.size_bytes, "fetched": staged.fetched}
    write_json(work.run.node(work.node), {**report, "path": str(staged.path)})
    work.tell("staged")
    return 0


def _clean(work: JobContext) -> int:
    """Give up what the run holds in this node's memory, and what crashed runs left."""
    shutil.rmtree(work.cache, ignore_errors=True)
    with suppress(OSError):
        work.cache.parent.rmdir()
    removed_models = work.shelf.give_up(work.run.id)
    if "{node}" in work.spec["memory"]:
        with suppress(OSError):
            work.memory.parent.rmdir()  # of nodes that share one memory the last one takes the folder of all
    work.run.node(work.node).unlink(missing_ok=True)
    work.tell("cleaned", gone=removed_models)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
