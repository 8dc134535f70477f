"""Paths of programs that run in a container: which folder of the host lies behind a path that they are given, or print.

Read off the options of docker, podman, apptainer, singularity, pyxis (`srun --container-mounts`), enroot, shifter, sarus and
Charliecloud. The longest mount point that holds a path counts. Pure.

Source: the manuals of these programs; pyxis takes `SRC:DST[:FLAGS]`, a lone `SRC` is mounted where it lies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from assistant.recover.shell_folders import absolute as normal_path

DOCKERS = frozenset(("docker", "podman", "podman-hpc", "nerdctl"))
APPTAINERS = frozenset(("apptainer", "singularity"))
OTHERS = frozenset(("shifter", "sarus", "ch-run", "enroot"))
RUNTIMES = DOCKERS | APPTAINERS | OTHERS
PYXIS = re.compile(r"--container-(?:image|mounts|name|workdir)(?:=|$)")
BIND_OPTIONS = ("--bind", "-B", "-b", "--volume", "-v", "-V", "--container-mounts")
MOUNT_OPTIONS = ("--mount", "-m")
FOLDER_OPTIONS = ("--workdir", "-w", "--pwd", "--cwd", "--container-workdir", "--cd", "-c")
PROGRAMS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|zsh|\S+\.(?:py|sh)")
"""Programs that are run in containers: what stands behind them are options of their own."""
BIND_VARIABLES = ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH")
UNRESOLVED = "\ufffc"
"""As in `shell_words`."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host that a container sees."""

    outside: str
    """Absolute, or with `UNRESOLVED`."""
    inside: str
    writable: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """What a container sees of the host."""

    mounts: tuple[Mount, ...]
    folder: str = ""
    """Where its program begins, as seen inside; empty where the image decides."""
    same: tuple[str, ...] = ()
    """Folders of the host that lie at the same path inside."""

    def outside(self, path: str, folder: str = "") -> Path | None:
        """Return where a path of the container lies on the host; None where that is not known, or in the image.

        Args:
            path: As the program is given it.
            folder: What a relative one is seen from, inside; its first folder where it is empty.
        """
        whole = self._whole(path, folder or self.folder)
        if not whole:
            return None
        for mount in sorted(self.mounts, key=lambda one: len(one.inside), reverse=True):
            if _below(whole, mount.inside):
                known = UNRESOLVED not in mount.outside
                return Path(mount.outside + whole[len(mount.inside.rstrip("/")) :]) if known else None
        return Path(whole) if any(_below(whole, one) for one in self.same) else None

    def inside(self, path: Path) -> str | None:
        """Return where a folder or file of the host lies in the container; None where it does not see it."""
        for mount in sorted(self.mounts, key=lambda one: len(one.outside), reverse=True):
            if _below(str(path), mount.outside) and UNRESOLVED not in mount.outside:
                return mount.inside.rstrip("/") + str(path)[len(mount.outside.rstrip("/")) :] or "/"
        return str(path) if any(_below(str(path), one) for one in self.same) else None

    def _whole(self, path: str, folder: str) -> str:
        if not path or UNRESOLVED in path or path.startswith("~"):
            return ""
        if not path.startswith("/") and (not folder.startswith("/") or UNRESOLVED in folder):
            return ""
        return normal_path(path, folder or "/")


def _below(path: str, folder: str) -> bool:
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)


def container_of(words: Sequence[str], folder: str, variables: Mapping[str, str]) -> Container | None:
    """Return the container that a command runs its program in; None where it uses none.

    Args:
        words: Of the command, expanded.
        folder: Where it runs, on the host.
        variables: Of its shell.
    """
    names = [PurePosixPath(word).name for word in words]
    begin = next((place for place, name in enumerate(names) if place and PROGRAMS.fullmatch(name)), len(words))
    words, names = words[:begin], names[:begin]
    runtime = next((place for place, name in enumerate(names[:40]) if name in RUNTIMES), None)
    pyxis = next((True for word in words[:60] if PYXIS.match(word)), False) if "srun" in names[:3] else False
    if runtime is None and not pyxis:
        return None
    program = names[runtime] if runtime is not None else "srun"
    mounts: list[Mount] = []
    begins = ""
    for name, value in _options(words[(runtime or 0) + 1 :]):
        if runtime is None and not name.startswith("--container-"):
            continue  # -w, -m and -v of srun mean something else
        if name in MOUNT_OPTIONS and "=" in value:
            mounts += _of_fields(value)
        elif name in BIND_OPTIONS or name in MOUNT_OPTIONS:
            if name in ("-v", "-V", "-b") and program in APPTAINERS:
                continue
            mounts += [one for part in value.split(",") for one in _of_colons(part)]
        elif name in FOLDER_OPTIONS and not (name == "-c" and program != "ch-run") and not (name == "-w" and program in APPTAINERS):
            begins = value
    same: tuple[str, ...] = ()
    if program in APPTAINERS:
        mounts += [one for name in BIND_VARIABLES for part in variables.get(name, "").split(",") for one in _of_colons(part)]
        contained = any(word in ("--contain", "--containall", "-c", "-C", "--no-home") for word in words[: (runtime or 0) + 30])
        same = () if contained else tuple(one for one in (folder, variables.get("HOME", ""), "/tmp") if one.startswith("/"))
        begins = begins or folder
    return Container(tuple(_placed(one, folder) for one in mounts), begins, same)


def pyxis_options(script: str) -> list[str]:
    """Return the options for containers of the `#SBATCH` lines, as words of a command of srun."""
    return ["srun", *re.findall(r"^#SBATCH[ \t]+(--container-(?:mounts|image|workdir)=\S{1,4000})", script, re.MULTILINE)]


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values, of both forms: `--bind=A:B` and `--bind A:B`; of short ones also `-vA:B`."""
    known = (*BIND_OPTIONS, *MOUNT_OPTIONS, *FOLDER_OPTIONS)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and name in known and name.startswith("--"):
            yield name, value
        elif word in known and place + 1 < len(words):
            yield word, words[place + 1]
        elif re.match(r"-[vBbwm][/$.\w]", word) and not word.startswith("--"):
            yield word[:2], word[2:]


def _of_colons(text: str) -> Iterator[Mount]:
    """Yield the mount of `SRC:DST[:FLAGS]`, or of a lone path that lies at the same place inside."""
    source, _, rest = text.strip().partition(":")
    target, _, flags = rest.partition(":")
    if not source or (target and not target.startswith("/")):
        return
    if not source.startswith(("/", ".", "~", UNRESOLVED)) and "/" not in source:
        return  # a volume that docker keeps, which lies nowhere that is known
    readonly = bool({"ro", "readonly"} & set(re.split(r"[,+]", flags)))
    yield Mount(source, target or source, writable=not readonly)


def _of_fields(text: str) -> Iterator[Mount]:
    """Yield the mount of `type=bind,source=A,target=B[,readonly]`."""
    fields = {part.partition("=")[0].strip(): part.partition("=")[2].strip() for part in text.split(",")}
    source = next((fields[key] for key in ("source", "src") if fields.get(key)), "")
    target = next((fields[key] for key in ("target", "destination", "dst") if fields.get(key)), "")
    if source and target.startswith("/") and fields.get("type", "bind") == "bind":
        readonly = any(key in fields and fields[key] not in ("false", "0") for key in ("readonly", "ro"))
        yield Mount(source, target, writable=not readonly)


def _placed(mount: Mount, folder: str) -> Mount:
    """Return a mount whose paths are absolute: sources are seen from where the command runs."""
    outside = mount.outside
    if UNRESOLVED not in outside + folder and not outside.startswith("~"):
        outside = normal_path(outside, folder or "/")
    elif not outside.startswith("/") or outside.startswith("~"):
        outside = UNRESOLVED
    return Mount(outside, normal_path(mount.inside, "/"), mount.writable)
