"""Every place that reads files or JSON by itself is listed here with the reason why no user of the cluster writes what it reads.

A new place fails: it reads through `assistant.untrusted`, or gets a line here.
"""

from __future__ import annotations

import ast
from functools import cache

from tests.sources import sources, syntax_trees

METHODS = {"read_text", "read_bytes", "iterdir", "glob", "rglob"}
FUNCTIONS = {
    *("json.load", "json.loads", "np.load", "numpy.load", "torch.load", "pickle.load", "pickle.loads", "marshal.loads", "os.open"),
    *("os.walk", "os.scandir", "os.listdir", "zipfile.ZipFile", "tarfile.open", "gzip.open", "tomllib.load", "tomllib.loads"),
}

OURS = "files and rows that Nightshift itself writes, in folders of its own"
SHIPPED = "files of the package or of the site's content and settings, which only the administrator writes"
SYSTEM = "files of the kernel and of the account's own SSH"
INSIDE = "runs inside the job, with its user's rights, on its user's files"
EMBEDDED = "the embedded scheduler: jobs run with our own rights"
OPERATOR = "named by the operator at the command line"
MODEL = "models, chosen by the administrator, and the processes that run them for us"
PROGRAM = "what programs that we started ourselves print"
ALLOWED = {
    "accounts.py": "the kernel's word on who logged in",
    "output_files.py": "opens folders, and files that it makes anew; it reads none",
    "reports/exports.py": OURS,
    "agent/": SHIPPED,
    "config/loading.py": SHIPPED,
    "content/": SHIPPED,
    "counting.py": OURS,
    "diagnose/learning/ranked.py": OPERATOR,
    "cli/measure/agent_bench.py": SHIPPED,
    "tui/sessions.py": OURS,
    "tui/outside_programs.py": OURS,
    "cli/measure/bench.py": OPERATOR,
    "cli/measure/evaluate_run.py": OURS,
    "cli/measure/evaluate.py": OPERATOR,
    "cli/config.py": SHIPPED,
    "cli/model.py": MODEL,
    "cli/output.py": "writes only",
    "cli/node_self_check.py": OURS,
    "demo/": OURS,
    "daemon/audit_anchors.py": OURS,
    "engine/backtest/": OPERATOR,
    "engine/ownership.py": SYSTEM,
    "gate/stops.py": OURS,
    "policy/loading.py": SHIPPED,
    "private_files.py": OURS,
    "evaluation/demo_model.py": INSIDE,
    "evaluation/demo_score.py": INSIDE,
    "evaluation/files.py": "our files and locks",
    "evaluation/metric.py": OURS,
    "evaluation/model_cache.py": "our copies, and the limits of memory that the kernel tells",
    "evaluation/jail.py": INSIDE,
    "evaluation/sandbox.py": OURS,
    "evaluation/trial.py": PROGRAM,
    "evaluation/stage.py": OURS,
    "llm/": MODEL,
    "logs/prefix.py": OPERATOR,
    "processes.py": "the first line of a program that others than root cannot change",
    "recover/checkpoints/aside.py": "writes only: a tracker, with its owner's rights",
    "recover/checkpoints/owner_files.py": "opens folders alone, with descriptors that read nothing",
    "recover/checkpoints/second_names.py": "lists folders that it opened itself, bounded in names; reads no file",
    "recover/checkpoints/files.py": "a zip over what the bounded reader has opened",
    "recover/checkpoints/inner_counts.py": "a zip over what the bounded reader has opened",
    "reports/page.py": SHIPPED,
    "reports/sacct_live.py": OURS,
    "recover/checkpoints/arrays.py": "a zip over what the bounded reader has opened",
    "recover/checkpoints/trackers.py": "a zip over what the bounded reader has opened",
    "recover/collective/commands.py": SHIPPED,
    "recover/collective/ring_program.py": INSIDE,
    "recover/collective/torch_program.py": INSIDE,
    "recover/trial/changes_program.py": INSIDE,
    "recover/trial/deadline_program.py": INSIDE,
    "recover/trial/launcher_program.py": INSIDE,
    "recover/trial/recorder_program.py": INSIDE,
    "recover/trial/sandbox_program.py": INSIDE,
    "recover/trial/trial.py": SHIPPED,
    "recover/wrong_start.py": SYSTEM,
    "rules/": SHIPPED,
    "schedulers/local.py": EMBEDDED,
    "schedulers/local_jobs.py": EMBEDDED,
    "schedulers/local_runner.py": EMBEDDED,
    "schedulers/slurm_run.py": "answers of Slurm's commands; the job's variables are only written, to sbatch",
    "schedulers/simulated.py": EMBEDDED,
    "schedulers/simulated_run.py": EMBEDDED,
    "store/": OURS,
    "training/": INSIDE,
    "transports/": SYSTEM,
    "untrusted.py": "the bounded reader itself",
}
UNPICKLES = {"training/checkpoints/protocol.py": "a pipe between a trainer and the writer that it started"}
"""What may run code that is in what it reads, and why nobody else can write that."""


def test_what_reads_by_itself_is_listed_with_its_reason() -> None:
    found = {name: calls for name, calls in _readers() if not any(name.startswith(known) for known in ALLOWED)}
    assert not found, "read through assistant.untrusted, or say in ALLOWED who alone writes what is read there"


def test_the_list_names_only_what_still_reads() -> None:
    names = [name for name, _ in _readers()]
    assert not [known for known in ALLOWED if not any(name.startswith(known) for name in names)]


def test_nothing_is_unpickled_that_a_user_could_have_written() -> None:
    found = [name for name, calls in _readers() if any(call.startswith(("pickle.", "marshal.")) for call in calls)]
    assert found == list(UNPICKLES)


def test_arrays_and_tensors_are_loaded_without_pickles() -> None:
    for name, tree in _trees():
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call):
                continue
            words = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
            assert words.get("allow_pickle") is not True, name
            assert _named(call) != "torch.load" or words.get("weights_only") is True, name


@cache
def _trees() -> list[tuple[str, ast.Module]]:
    return [(path.removeprefix("assistant/"), syntax_trees()[path]) for path in sources() if path.startswith("assistant/")]


@cache
def _readers() -> list[tuple[str, set[str]]]:
    calls = {
        name: {word for call in ast.walk(tree) if isinstance(call, ast.Call) and (word := _reads(call))} for name, tree in _trees()
    }
    return [(name, words) for name, words in calls.items() if words]


def _reads(call: ast.Call) -> str:
    if _named(call) in FUNCTIONS or _named(call) == "open":
        return _named(call)
    if not isinstance(call.func, ast.Attribute):
        return ""
    if call.func.attr == "open":
        mode = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        return ".open" if isinstance(mode, str) and "r" in mode else ""
    return f".{call.func.attr}" if call.func.attr in METHODS else ""


def _named(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        return f"{call.func.value.id}.{call.func.attr}"
    return ""
