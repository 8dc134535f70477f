"""Start the ranks of a step on this node, in the place of srun, mpirun and torchrun: the launcher inside a trial's sandbox.

It travels as text, so it imports nothing but the standard library and runs on Python 3.6. Each rank gets the variables that the
launcher would set; what a launcher does with hosts, binding and containers is left out. Its exit status is the worst of the ranks.
"""

# What a newer Python would write does not run on the nodes' 3.6.
# ruff: noqa: PTH119, PTH123, UP006, UP031, UP035

import os
import re
import subprocess
import sys
from typing import Any, Dict, List, Tuple

SRUN_VALUES = frozenset("-A -b -c -C -d -D -e -g -G -i -J -L -m -M -n -N -o -p -P -r -S -t -T -w -W -x -B".split())
SRUN_SWITCHES = frozenset(
    "--bcast --compress --contiguous --debugger-test --disable-status --exact --exclusive --external --help --hold --immediate "
    "--interactive --kill-on-bad-exit --label --multi-prog --nice --no-allocate --no-kill --overcommit --overlap "
    "--oversubscribe --preserve-env --propagate --pty --quiet --quit-on-interrupt --reboot --resv-ports --send-libs --share "
    "--spread-job --stepmgr --test-only --unbuffered --usage --use-min-nodes --verbose --version --whole --x11".split()
)
"""Long options of srun(1) that take no value, or none behind a blank; each other one does."""
NO_TASK = "4294967294"
"""What Slurm writes for the index of a job that is no array."""
MPI_VALUES = frozenset("-n -np --np -H --host --hostfile -hostfile --map-by --bind-to -machinefile".split())
TORCH_SWITCHES = frozenset("--standalone --no-python --no_python --run-path --run_path".split())


def parted(kind: str, words: List[str]) -> Tuple[Dict[str, str], List[str]]:
    """Return the options of a launcher, and the command that it starts."""
    values = {}  # type: Dict[str, str]
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        word = words[place]
        key, equals, value = word.partition("=")
        place += 1
        if kind == "mpirun" and key in ("-x", "--mca", "-mca"):
            place += 1 if key == "-x" else 2
        elif kind == "torchrun" and (key in TORCH_SWITCHES or key in ("-m", "--module")):
            values["--module" if key == "-m" else key.replace("_", "-")] = "1"
        elif not equals and (
            (kind == "srun" and (key in SRUN_VALUES or (key[:2] == "--" and key not in SRUN_SWITCHES)))
            or (kind == "mpirun" and key in MPI_VALUES)
            or kind == "torchrun"
        ):
            values[key.replace("_", "-")] = words[place] if place < len(words) else ""
            place += 1
        elif not equals and kind == "srun" and len(key) > 2 and key[1] != "-" and key[:2] in SRUN_VALUES:
            values[key[:2]] = key[2:]
        else:
            values[key.replace("_", "-")] = value
    return values, words[place + 1 :] if words[place : place + 1] == ["--"] else words[place:]


def number(values: Dict[str, str], *keys: str) -> int:
    """Return the first option that is a number; 0 where none is."""
    texts = [values.get(key, "").split("-")[0].split(":")[0] for key in keys]
    return next((int(text) for text in texts if text.isdigit()), 0)


def shape(kind: str, values: Dict[str, str]) -> Tuple[int, int, int]:
    """Return how many ranks are started here, how many a node has, and how many nodes there are."""
    nodes = number(values, "-N", "--nodes", "--nnodes") or int(os.environ.get("SLURM_NNODES", "1"))
    if kind == "torchrun":
        each = number(values, "--nproc-per-node") or int(os.environ.get("SLURM_GPUS_ON_NODE", "1") or 1)
        return (each if "SLURM_STEP_ID" in os.environ else each * nodes), each, nodes
    if kind == "mpirun":
        ranks = number(values, "-n", "-np", "--np") or int(os.environ.get("SLURM_NTASKS", "1"))
        return ranks, max(1, -(-ranks // nodes)), nodes
    per_node = number(values, "--ntasks-per-node")
    default = nodes if number(values, "-N", "--nodes") else int(os.environ.get("SLURM_NTASKS", "1"))
    ranks = number(values, "-n", "--ntasks") or per_node * nodes or default
    return ranks, max(1, -(-ranks // nodes)), nodes


def variables(kind: str, rank: int, ranks: int, each: int, nodes: int) -> Dict[str, Any]:
    """Return what a launcher tells a rank of itself."""
    if kind == "srun":
        names = os.environ.get("LAUNCHER_NODES", "localhost").split(",")
        node = rank // each
        return {
            "SLURM_PROCID": rank, "SLURM_LOCALID": rank % each, "SLURM_NODEID": node, "SLURM_NTASKS": ranks,
            "SLURM_STEP_NUM_TASKS": ranks, "SLURM_STEP_ID": 0, "SLURM_STEP_NUM_NODES": nodes,
            "SLURMD_NODENAME": names[min(node, len(names) - 1)],
        }  # fmt: skip
    inside = kind == "torchrun" and "SLURM_STEP_ID" in os.environ
    first = int(os.environ.get("SLURM_NODEID", "0")) * each if inside else 0
    total = each * nodes if kind == "torchrun" else ranks
    return {
        "RANK": first + rank, "LOCAL_RANK": rank % each, "WORLD_SIZE": total, "LOCAL_WORLD_SIZE": each,
        "GROUP_RANK": (first + rank) // each, "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": total,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank % each, "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29511"), "TORCHELASTIC_RUN_ID": "trial", "TORCHELASTIC_RESTART_COUNT": 0,
    }  # fmt: skip


def filled(pattern: str, rank: int, each: int, extra: Dict[str, Any]) -> str:
    """Return the name of a file as srun fills in its pattern: `%j_%3t.out`; behind a backslash it stays as it is."""
    environment = os.environ
    job = environment.get("SLURM_JOB_ID", "")
    marks = {
        "j": job, "J": job + ".0", "t": rank, "s": 0, "x": environment.get("SLURM_JOB_NAME", ""), "n": rank // each,
        "N": str(extra.get("SLURMD_NODENAME", "")).split(".")[0], "u": environment.get("USER", ""), "%": "%",
        "A": environment.get("SLURM_ARRAY_JOB_ID", job), "a": environment.get("SLURM_ARRAY_TASK_ID", NO_TASK),
    }  # type: Dict[str, Any]  # fmt: skip
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def text_of(match: Any) -> str:
        text = str(marks.get(match.group(2), match.group(0)))
        return text.zfill(min(int(match.group(1)), 10)) if match.group(1) and text.isdigit() else text

    return re.sub(r"%(\d*)([A-Za-z%])", text_of, pattern)


def stream_of(pattern: str, rank: int, each: int, extra: Dict[str, Any]) -> Any:
    """Return the file that a step writes a stream to; None where that is the one of the script."""
    if pattern in ("", "all") or pattern.isdigit():
        return None
    if pattern == "none":
        return subprocess.DEVNULL
    try:
        return open(filled(pattern, rank, each, extra), "a")
    except OSError:
        return None


def main(name: str, words: List[str]) -> int:
    """Start the ranks, wait for them, and return the worst exit status."""
    kind = "mpirun" if name.startswith("mpi") else name
    values, command = parted(kind, words)
    ranks, each, nodes = shape(kind, values)
    if kind == "torchrun":
        python = [] if "--no-python" in values else ["python3", "-u"]
        command = python + (["-m"] if "--module" in values else []) + command
    if ranks > int(os.environ.get("LAUNCHER_RANKS", "16")):
        sys.stderr.write("%s: error: a trial starts no %d ranks on one node\n" % (name, ranks))
        return 1
    children = []
    for rank in range(ranks):
        extra = variables(kind, rank, ranks, each, nodes)
        environment = dict(os.environ, **{key: str(value) for key, value in extra.items()})
        output, error_output = (
            values.get(short) or values.get(key) or "" for short, key in (("-o", "--output"), ("-e", "--error"))
        )
        out = stream_of(output, rank, each, extra)
        err = stream_of(error_output, rank, each, extra) if error_output != output else None
        err = err if err is not None or out is None else subprocess.STDOUT
        try:
            children.append(subprocess.Popen(command, env=environment, stdout=out, stderr=err))
        except OSError as error:
            sys.stderr.write("%s: error: %s\n" % (name, error))
            return 1
    codes = [child.wait() for child in children]
    return max(code if code >= 0 else 128 - code for code in codes)


if __name__ == "__main__":
    sys.exit(main(os.path.basename(sys.argv[0]), sys.argv[1:]))
