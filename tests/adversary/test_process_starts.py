"""One module starts processes, so that nothing runs with an environment or by a name that nobody chose."""

from __future__ import annotations

import ast
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant import processes
from assistant.errors import ConfigError, Unavailable
from assistant.schedulers.slurm_run import SlurmCommands
from assistant.transports.ssh_hosts import read_config

PACKAGE = Path(processes.__file__).parent
EXCEPTIONS = {
    "processes.py": "the module itself",
    "evaluation/jail.py": "becomes the program that is to be jailed, after it has given its rights away",
    "recover/trial/launcher_program.py": "runs inside the sandbox of a node, as the owner of the script",
    "recover/trial/sandbox_program.py": "travels to a node, and becomes the owner of the script before it starts anything",
    "training/checkpoints/writer.py": "runs inside the jobs of others, as their user, and starts only itself",
    "training/model.py": "runs inside the jobs of others, as their user, and starts only itself",
}
STARTERS = {
    "subprocess": {"Popen", "run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile"},
    "pty": {"spawn", "fork"},
    "asyncio": {"create_subprocess_exec", "create_subprocess_shell"},
    "multiprocessing": {"Process", "Pool", "get_context"},
}
MENTIONS = re.compile(
    r"\b(?:subprocess|pty|asyncio|multiprocessing|concurrent)\b|\bos\s+(?:as|import)\b|\bos\.(?:system|popen|fork|posix_|start|exec|spawn)"
)
"""What a module that starts a process writes somewhere; parsing takes 100 times as long as looking for it."""


def starts(source: str) -> Iterator[str]:
    """Yield what a module calls or imports that starts a process."""
    for node in ast.walk(ast.parse(source)) if MENTIONS.search(source) else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            module, name = node.func.value.id, node.func.attr
            if name in STARTERS.get(module, ()) or (module == "os" and name.startswith(("exec", "spawn"))):
                yield f"{module}.{name}"
        elif isinstance(node, ast.ImportFrom) and node.module in STARTERS:
            names = {alias.name for alias in node.names}
            yield from (f"{node.module}.{name}" for name in sorted(names & STARTERS[node.module]))
            yield from (f"os.{name}" for name in sorted(names) if node.module == "os" and name.startswith(("exec", "spawn")))
        elif isinstance(node, ast.Import):
            # another name would hide the calls
            yield from (f"import {alias.name} as" for alias in node.names if alias.asname and alias.name in STARTERS)
        elif isinstance(node, ast.ImportFrom) and node.module == "concurrent.futures":
            yield from ("ProcessPoolExecutor" for alias in node.names if alias.name == "ProcessPoolExecutor")


def modules() -> list[str]:
    folders = [PACKAGE, *(PACKAGE / name for name in ("tools", "playbooks", "knowledge"))]
    return sorted({str(path.relative_to(PACKAGE)) for folder in folders for path in folder.rglob("*.py")})


def test_nothing_but_one_module_starts_processes() -> None:
    found = {name: list(starts((PACKAGE / name).read_text(encoding="utf-8"))) for name in modules()}
    assert {name: calls for name, calls in found.items() if calls and name not in EXCEPTIONS} == {}
    assert [name for name in EXCEPTIONS if not found[name]] == []


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess\nsubprocess.run(['x'])",
        "from subprocess import Popen",
        "import os\nos.execvp('x', ['x'])",
        "import os\nos.system('x')",
        "from os import posix_spawn",
        "import os as system",
        "import asyncio\nasyncio.create_subprocess_exec('x')",
        "import multiprocessing\nmultiprocessing.Process()",
    ],
)
def test_the_search_finds_a_start(source: str) -> None:
    assert list(starts(source))


HOSTILE = {
    "LD_PRELOAD": "/tmp/evil.so",
    "LD_AUDIT": "/tmp/evil.so",
    "BASH_ENV": "/tmp/evil",
    "ENV": "/tmp/evil",
    "PYTHONSTARTUP": "/tmp/evil",
    "PYTHONPATH": "/tmp",
    "GCONV_PATH": "/tmp",
    "PERL5OPT": "-Mevil",
    "BASH_FUNC_ls%%": "() { evil; }",
    "SQUEUE_FORMAT": "%i",
    "SBATCH_EXPORT": "NONE",
    "NIGHTSHIFT_SECRET": "s",
}


def test_a_clean_environment_has_nothing_of_the_callers_but_a_few_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in HOSTILE.items():
        monkeypatch.setenv(name, text)
    made = processes.clean_environment({"SLURMD_NODENAME": "n1"})
    assert set(made) <= {*processes.PASSED_ON, "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LC_ALL", "SLURMD_NODENAME"}
    own = processes.own_environment()
    assert {"LD_PRELOAD", "LD_AUDIT", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PERL5OPT"}.isdisjoint(own)


@pytest.mark.parametrize("folder_mode", [0o777, 0o775, 0o1777, 0o755])
@pytest.mark.parametrize("file_mode", [0o757, 0o775, 0o755])
def test_root_runs_only_what_nobody_else_can_change(tmp_path: Path, folder_mode: int, file_mode: int) -> None:
    if os.geteuid():
        pytest.skip("it is about root")
    tmp_path.chmod(0o755)
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "sbatch"
    program.write_text("#!/bin/sh\n")
    os.chown(folder, 0, 7)
    os.chown(program, 0, 7)
    folder.chmod(folder_mode)
    program.chmod(file_mode)
    safe = folder_mode in (0o755, 0o1777) and file_mode == 0o755
    link = tmp_path / "link"
    link.symlink_to(program)
    for named in (str(program), str(link)):
        if safe:
            assert processes.program_path(named) == named
        else:
            with pytest.raises(processes.UnsafeProgram, match="may be written by others"):
                processes.program_path(named)
    assert processes.program_path("sh", [str(folder), "/bin"]) == "/bin/sh"


def test_root_runs_nothing_that_belongs_to_another_user(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("it is about root")
    program = tmp_path / "sbatch"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.chown(program, 1, 1)
    with pytest.raises(processes.UnsafeProgram, match="belongs to uid 1"):
        processes.program_path(str(program))
    program.unlink()
    program.symlink_to("/bin/sh")
    os.lchown(program, 1, 1)
    with pytest.raises(processes.UnsafeProgram, match="belongs to uid 1"):
        processes.program_path("sbatch", [str(tmp_path)])


def test_a_folder_in_path_counts_for_root_only_if_nobody_else_can_write_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid():
        pytest.skip("it is about root")
    evil = tmp_path / "evil"
    evil.mkdir()
    evil.chmod(0o777)
    (evil / "sh").write_text("#!/bin/sh\n")
    (evil / "sh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{evil}:relative:.:/bin")
    assert str(evil) not in processes.search_folders()
    assert processes.program_path("sh") == "/bin/sh"
    assert stat.S_IMODE(evil.stat().st_mode) == 0o777


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
@pytest.mark.parametrize(
    "line", ["#!{theirs}", "#! {theirs} -x", "#!/usr/bin/env {theirs}", "#!/usr/bin/env -S {theirs} -x", "#!{between}"]
)
def test_root_runs_no_script_whose_interpreter_somebody_else_can_change(line: str, tmp_path: Path) -> None:
    theirs, between, script = tmp_path / "python", tmp_path / "between", tmp_path / "sbatch"
    theirs.write_text("#!/bin/sh\n")
    between.write_text(f"#!{theirs}\n")
    script.write_text(line.format(theirs=theirs, between=between) + "\n")
    for path in (theirs, between, script):
        path.chmod(0o755)
    assert processes.program_path(str(script)) == str(script)
    os.chown(theirs, 1, 1)
    with pytest.raises(processes.UnsafeProgram, match=r"python belongs to uid 1"):
        processes.program_path(str(script))


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
def test_each_link_of_a_chain_is_looked_at(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to("/bin/sh")
    (tmp_path / "sbatch").symlink_to(shared / "link")
    assert processes.changeable(str(tmp_path / "sbatch")) == ""
    os.lchown(shared / "link", 1, 1)
    assert "belongs to uid 1" in processes.changeable(str(tmp_path / "sbatch"))
    assert "belongs to uid 1" in processes.changeable(f"{shared}/link/../../bin/sh")


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
def test_no_word_of_a_wrapper_and_no_slurm_conf_is_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, conf = tmp_path / "tool", tmp_path / "slurm.conf"
    for path in (theirs, conf):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    commands = SlurmCommands(folder=Path("/bin"), conf=conf, timeout_s=5)
    wrapper = ["/usr/bin/env", "A=b", str(theirs)]
    assert commands.words("true", before=wrapper) == [*wrapper, "/bin/true"]
    assert commands.run("true").status == 0
    os.chown(theirs, 1, 1)
    os.chown(conf, 1, 1)
    with pytest.raises(Unavailable, match="belongs to uid 1"):
        commands.words("true", before=wrapper)
    with pytest.raises(Unavailable, match=r"slurm\.conf, since"):
        commands.run("true")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    with pytest.raises(Unavailable, match=r"slurm\.conf, since"):
        SlurmCommands(folder=Path("/bin"), conf=None, timeout_s=5).run("true")


@pytest.mark.skipif(os.geteuid() != 0, reason="it is about root")
@pytest.mark.parametrize(
    "line", ["include {theirs}", "  Include theirs", "PluginDir=/usr/lib:{theirs}", 'plugstackconfig = "{theirs}"']
)
def test_nothing_that_a_slurm_conf_names_is_somebody_elses(line: str, tmp_path: Path) -> None:
    conf, theirs = tmp_path / "slurm.conf", tmp_path / "theirs"
    conf.write_text("ClusterName=c\n# a comment\n" + line.format(theirs=theirs) + "\n")
    theirs.write_text("ClusterName=c\n")
    commands = SlurmCommands(folder=Path("/bin"), conf=conf, timeout_s=5)
    assert commands.run("true").status == 0
    os.chown(theirs, 1, 1)
    with pytest.raises(Unavailable, match="theirs belongs to uid 1"):
        commands.run("true")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file away")
@pytest.mark.parametrize("included", [True, False])
def test_an_ssh_config_that_somebody_else_may_write_is_not_used(included: bool, tmp_path: Path) -> None:
    config, theirs = tmp_path / "config", tmp_path / "theirs"
    theirs.write_text("Host *\n  ProxyCommand /tmp/evil\n")
    config.write_text(f"Include {theirs}\n")
    path = config if included else theirs
    assert read_config(path, home=tmp_path, folder=tmp_path)[0]
    os.chown(theirs, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to"):
        read_config(path, home=tmp_path, folder=tmp_path)
