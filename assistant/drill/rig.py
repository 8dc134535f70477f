"""The rig of a drill: a program that can hurt and heal a test cluster, called from outside.

It must know `env` (prints `export NAME=value` lines: SLURM_CONF, DEVCLUSTER_SSH_CONFIG, DEVCLUSTER_SHARED), `fail-node`,
`heal-node`, `inject` and `exec`. The folder that all nodes share must be reachable here under the name that the nodes use.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from assistant import processes
from assistant.errors import ConfigError, Unavailable

SHARED = Path("/shared")
"""What the nodes call the folder that they share."""
DEADLINE_S = 60.0


class Rig:
    """A test cluster's own tool."""

    def __init__(self, program: Path, home: Path | None) -> None:
        """Ask the tool what its cluster is called.

        Raises:
            ConfigError: The tool is not there, or its cluster is not up.
        """
        self._words = [str(program), *(["--home", str(home)] if home else [])]
        if not program.is_file():
            raise ConfigError(f"--rig {program}: there is no such program; it starts and hurts the test cluster")
        self.variables = self._variables()
        self._linked = False

    @property
    def slurm_conf(self) -> Path:
        """The slurm.conf of the cluster."""
        return Path(self.variables["SLURM_CONF"])

    @property
    def ssh_config(self) -> Path:
        """The ssh_config that reaches its nodes."""
        return Path(self.variables["DEVCLUSTER_SSH_CONFIG"])

    def do(self, words: Sequence[str], names: Mapping[str, str]) -> None:
        """Run one command of the tool, with `{node}` and the like filled in.

        Raises:
            Unavailable: It failed; the message has its words.
        """
        filled = [_filled(word, names) for word in words]
        done = processes.run(
            [*self._words, *filled],
            environment=processes.own_environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            raise Unavailable(f"{shlex.join(filled)}: {done.stderr.strip() or done.stdout.strip()}")

    def share(self, folder: Path | None = None) -> Path:
        """Return a folder that has the same name here and on the nodes.

        Args:
            folder: One that is known to; without it the rig's own shared folder is made reachable here by a link.

        Raises:
            ConfigError: The folder is not there, or something else has the name of the nodes' shared folder on this machine.
        """
        if folder is not None:
            if not folder.is_dir():
                raise ConfigError(
                    f"--shared {folder}: there is no such folder; it must lie at the same path here and on every node"
                )
            return folder
        here = Path(self.variables["DEVCLUSTER_SHARED"])
        if SHARED.is_symlink() and SHARED.resolve() == here.resolve():
            return SHARED
        if SHARED.exists() or SHARED.is_symlink():
            raise ConfigError(f"{SHARED} on this machine is not the cluster's shared folder {here}; move it away for the drill")
        SHARED.symlink_to(here)
        self._linked = True
        return SHARED

    def close(self) -> None:
        """Take the link away again."""
        if self._linked:
            with suppress(FileNotFoundError):
                SHARED.unlink()

    def _variables(self) -> dict[str, str]:
        done = processes.run(
            [*self._words, "env"], environment=processes.own_environment(), capture_output=True, text=True, timeout=DEADLINE_S
        )
        exports = [line.removeprefix("export ") for line in done.stdout.splitlines() if line.startswith("export ")]
        found = dict(word.partition("=")[::2] for line in exports for word in shlex.split(line))
        if done.returncode or "SLURM_CONF" not in found:
            raise ConfigError(
                f"{shlex.join(self._words)}: its cluster is not up ({done.stderr.strip()}); start it with `up --nodes 6`"
            )
        return found


def _filled(word: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(f"{{{name}}}", value)
    return word
