"""Commands that reach the scheduler and change something: through the policy, with an undo, and never by surprise."""

from __future__ import annotations

import os
import pty
import pwd
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import typer

from assistant import wiring
from assistant.cli.output import Exit
from assistant.config import load
from assistant.errors import Parked
from assistant.gate.consent import BEFORE_S
from assistant.ports import SystemClock
from assistant.records import IncidentState, JobSpec, NodeState
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store

Run = Callable[..., Any]

SCRIPT = """#!/bin/bash
echo "iteration        1/     100 | loss 4.2"
echo "Traceback (most recent call last):"
echo '  File "train.py", line 3, in <module>'
echo "KeyError: 'lr'"
exit 1
"""


ECC_SCRIPT = """#!/bin/bash
iteration() { echo " iteration $1/100 | lm loss: 4.0 | grad norm: 1.0 |"; }
if [ -z "$NIGHTSHIFT_ATTEMPT" ]; then
  for step in 1 2 3 4 5; do iteration $step; done
  echo "[rank0]: RuntimeError: CUDA error: uncorrectable ECC error encountered"
  echo "[$(date '+%a %b %e %H:%M:%S %Y')] NVRM: Xid (PCI:0000:0f:00): 48, pid=812, DBE ECC error" >> $NIGHTSHIFT_NODE_DIR/kernel.log
  exit 1
fi
for step in $(seq 20); do iteration $step; done
"""
"""Fails once, as its log and the kernel of its node say, and trains when it is started again."""


@pytest.fixture
def scheduler(store_path: Path, home: Path) -> LocalScheduler:
    """The local scheduler of the command line, whose nodes have kernel logs of their own."""
    config = home / "xdg_config_home" / "nightshift" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[commands]\nkernel_log = ["cat", "kernel.log"]\n', encoding="utf-8")
    return LocalScheduler(store_path.parent / "local", SystemClock())


@pytest.fixture
def failed_job(scheduler: LocalScheduler, home: Path) -> str:
    """A job whose script has a bug, ended."""
    return ended(scheduler, JobSpec("llm", SCRIPT, work_dir=home))


def ended(scheduler: LocalScheduler, spec: JobSpec) -> str:
    """Submit a job and return its id when it has ended."""
    job = scheduler.submit(spec)
    wait_for_end(scheduler, job)
    return job


def wait_for_end(scheduler: LocalScheduler, job: str) -> None:
    for _ in range(100):
        if scheduler.job(job).state.ended:
            return
        time.sleep(0.1)
    raise TimeoutError(f"job {job} has not ended")


def states(scheduler: LocalScheduler) -> dict[str, NodeState]:
    return {node.name: node.state for node in scheduler.nodes()}


def test_nodes_of_the_same_state_stand_on_one_line(cli: Run, scheduler: LocalScheduler) -> None:
    scheduler.cordon("node02", "fan is loud")
    lines = cli("nodes").out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [["node[01,03-04]", "3", "idle"], ["node02", "1", "drained"]]
    assert [one["name"] for one in cli("nodes", "-w", "node[03-04]", "--json").objects] == ["node03", "node04"]


def test_a_cordon_without_a_terminal_waits_for_an_approval(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "cordon", "node[01-02]", "--why", "fan is loud")
    assert said.code == Exit.WAITS
    assert "nightshift approve 1" in said.err
    assert set(states(scheduler).values()) == {NodeState.IDLE}
    assert len(cli("approvals", "--json").objects) == 2


def test_an_approved_cordon_is_made_at_once_and_can_be_undone(cli: Run, scheduler: LocalScheduler) -> None:
    cli("nodes", "cordon", "node02")
    assert cli("approve", 1).code == Exit.DONE
    assert states(scheduler)["node02"] is NodeState.DRAINED
    said = cli("undo", 1, "--yes")
    assert said.code == Exit.DONE
    assert states(scheduler)["node02"] is NodeState.IDLE


def test_an_empty_digest_is_no_answer(cli: Run, scheduler: LocalScheduler) -> None:
    cli("nodes", "cordon", "node02")
    for command in ("approve", "deny"):
        assert cli(command, 1, "--digest", "").code == Exit.USAGE
    assert states(scheduler)["node02"] is NodeState.IDLE
    assert cli("approvals", "--json").objects[0]["verdict"] is None


def test_what_cannot_be_undone_is_approved_without_a_terminal_by_its_digest_only(
    cli: Run, scheduler: LocalScheduler, store_path: Path, home: Path
) -> None:
    job = scheduler.submit(JobSpec("llm", "#!/bin/bash\nsleep 60\n", work_dir=home))
    with Store(store_path, SystemClock()) as store:
        gate = wiring.build(load().settings, store=store, scheduler=scheduler).gate
        with pytest.raises(Parked):
            gate.call("cancel_job", {"job": job}, why="it hangs", by="cli:ada")
    refused = cli("approve", 1)
    assert refused.code == Exit.USAGE
    assert f"scancel {job}" in refused.err
    assert "cannot be undone" in refused.err
    assert not scheduler.job(job).state.ended
    (waiting,) = cli("approvals", "--json").objects
    made = cli("approve", 1, "--digest", waiting["digest"])
    assert made.code == Exit.DONE
    assert "undo" not in made.out
    wait_for_end(scheduler, job)


@pytest.mark.parametrize("go_on", [("resume",), ("approve", 1)])
def test_what_was_allowed_and_met_a_kill_switch_is_listed_and_goes_on_by_hand(
    cli: Run, scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch, go_on: tuple[object, ...]
) -> None:
    site = home / "site" / "knowledge"
    site.mkdir(parents=True)
    terms = f'extends = "shipped"\nmode = "propose"\nreplace = ["kill_switch"]\nkill_switch = ["{home}/stop"]\n[end]\n'
    (site / "policy.toml").write_text(terms)
    monkeypatch.setenv("NIGHTSHIFT_CONTENT", str(home / "site"))
    cli("nodes", "cordon", "node01")
    cli("stop")
    for command in (("approve", 1), go_on):
        assert cli(*command).code == Exit.REFUSED
        assert "not made yet: nightshift approve 1" in cli("approvals").out
    assert states(scheduler)["node01"] is NodeState.IDLE
    assert (home / "stop").exists()
    cli("stop", "--lift")
    assert cli(*go_on).code == Exit.DONE
    assert states(scheduler)["node01"] is NodeState.DRAINED
    assert "node01" not in cli("approvals").out
    assert cli("approve", 1).code == Exit.USAGE
    assert cli("resume").code == Exit.DONE


def test_who_answers_is_the_account_and_no_variable(cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.setenv(name, "alice")
    cli("nodes", "cordon", "node02")
    cli("deny", 1)
    answers = [row["by"] for row in cli("audit", "show", "--json").objects if row["what"] == "approval.answered"]
    assert answers == [f"cli:{pwd.getpwuid(os.getuid()).pw_name}"]
    login = tmp_path / "loginuid"
    login.write_text("65534")
    monkeypatch.setattr("assistant.accounts._LOGIN", login)
    cli("nodes", "cordon", "node03")
    cli("deny", 2)
    answers = [row["by"] for row in cli("audit", "show", "--json").objects if row["what"] == "approval.answered"]
    assert answers[-1] == f"cli:{pwd.getpwuid(65534).pw_name}"


def test_a_store_that_others_have_written_is_accepted_with_a_reason_only(cli: Run, scheduler: LocalScheduler, store: Store) -> None:
    assert "nothing to accept" in cli("audit", "accept", "--why", "looked").out
    cli("nodes", "cordon", "node02", "--yes")
    written = sqlite3.connect(store.path)
    written.execute("UPDATE decisions SET by = 'cli:mallory'")
    written.commit()
    written.close()
    said = cli("nodes", "uncordon", "node02", "--yes")
    assert said.code == Exit.REFUSED
    assert "past Nightshift" in said.err + said.out
    assert states(scheduler)["node02"] is NodeState.DRAINED
    assert cli("audit", "accept", "--why", " ", "--yes").code == Exit.USAGE
    assert cli("audit", "accept", "--why", "looked", "--json").code == Exit.USAGE
    assert cli("audit", "accept", "--why", "looked at it", "--yes").code == Exit.DONE
    assert cli("audit", "verify").code == Exit.DONE
    assert "looked at it" in cli("audit", "verify").out
    assert cli("nodes", "uncordon", "node02", "--yes").code == Exit.DONE
    assert states(scheduler)["node02"] is NodeState.IDLE


def test_what_is_written_while_a_person_looks_is_shown_before_it_is_accepted(
    cli: Run, scheduler: LocalScheduler, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli("nodes", "cordon", "node02", "--yes")
    assert cli("breaker", "open", "--why", "stop it").code == Exit.DONE
    with closing(sqlite3.connect(store.path, isolation_level=None)) as written:
        written.execute("UPDATE decisions SET by = 'cli:mallory'")
        questions: list[str] = []

        def confirm(question: str, *, abort: bool) -> bool:
            questions.append(question)
            if len(questions) == 1:
                written.execute("DELETE FROM properties WHERE name = 'breaker'")
            return True

        monkeypatch.setattr(typer, "confirm", confirm)
        said = cli("audit", "accept", "--why", "looked")
    assert said.code == Exit.DONE
    assert [question.split()[-2] for question in questions] == ["1", "2"]
    assert said.out.index("Look again") < said.out.index("properties breaker was removed")


def test_with_yes_a_cordon_is_made_and_written_down(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "cordon", "node02", "--yes", "--json")
    assert (said.code, said.objects[0]["ok"]) == (Exit.DONE, True)
    assert states(scheduler)["node02"] is NodeState.DRAINED
    assert {row["what"] for row in cli("audit", "show", "--json").objects} >= {"call.pending", "decision", "call.intent", "outcome"}


def test_a_dry_run_prints_the_change_and_makes_none(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "cordon", "node02", "--dry-run")
    assert said.code == Exit.WAITS
    assert "State=DRAIN" in said.out
    assert states(scheduler)["node02"] is NodeState.IDLE
    assert cli("audit", "show", "--json").out == ""


def test_the_kill_switch_refuses_even_with_yes(
    cli: Run, scheduler: LocalScheduler, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = home / "site" / "knowledge"
    site.mkdir(parents=True)
    (site / "policy.toml").write_text(f'extends = "shipped"\nmode = "act"\nkill_switch = ["{home}/stop"]\n[end]\n')
    (home / "stop").touch()
    monkeypatch.setenv("NIGHTSHIFT_CONTENT", str(home / "site"))
    said = cli("nodes", "cordon", "node02", "--yes")
    assert said.code == Exit.REFUSED
    assert "stop" in said.err
    assert states(scheduler)["node02"] is NodeState.IDLE


def test_an_unknown_node_is_refused_before_anything_is_done(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "cordon", "node[02,77]", "--yes")
    assert said.code == Exit.USAGE
    assert "knows no node node77; known: node[01-04]" in said.err
    assert states(scheduler)["node02"] is NodeState.IDLE


def test_a_job_is_shown_with_how_it_ended_and_what_to_do(cli: Run, failed_job: str) -> None:
    said = cli("job", "show", failed_job)
    assert "exit code 1" in said.out
    assert f"nightshift recover {failed_job} --dry-run" in said.out
    assert [one["id"] for one in cli("jobs", "--state", "failed", "--json").objects] == [failed_job]
    assert cli("jobs", "--state", "running", "--json").out == ""


def test_an_unknown_job_is_an_error(cli: Run, scheduler: LocalScheduler) -> None:
    for words in (["job", "show", "99"], ["logs", "tail", "99"], ["recover", "99"]):
        said = cli(*words)
        assert said.code == Exit.ERROR
        assert "'99' is unknown" in said.err


def test_a_dry_run_of_a_recovery_leaves_no_trace(cli: Run, failed_job: str) -> None:
    said = cli("recover", failed_job, "--dry-run")
    assert said.code == Exit.DONE
    assert "key_error" in said.out
    assert "playbook: owner" in said.out
    assert cli("incidents", "--json").out == ""
    assert cli("audit", "show", "--json").out == ""


def test_a_script_bug_is_not_restarted_but_told(cli: Run, failed_job: str, scheduler: LocalScheduler, store_path: Path) -> None:
    said = cli("recover", failed_job, "--json")
    assert said.code == Exit.ERROR
    assert [job.id for job in scheduler.jobs()] == [failed_job]
    with Store(store_path, SystemClock()) as store:
        assert store.incident(1).state is IncidentState.ESCALATED
    assert "KeyError" in cli("incident", "report", 1).out
    assert "has ended: escalated" in cli("recover", "--incident", 1).err


def test_a_job_comes_back_by_two_approvals(cli: Run, scheduler: LocalScheduler, home: Path) -> None:
    job = ended(scheduler, JobSpec("llm", ECC_SCRIPT, work_dir=home))
    said = cli("--quiet", "recover", job)
    assert said.code == Exit.WAITS
    assert "nightshift approve 1" in said.out
    assert cli("--quiet", "approve", 1).code == Exit.WAITS
    assert states(scheduler)["node01"] is NodeState.DRAINED
    assert cli("--quiet", "approve", 2).code == Exit.DONE
    assert [(one["state"], one["reason"]) for one in cli("incidents", "--json").objects] == [("recovered", "ecc_error")]
    assert [found.nodes == ("node01",) for found in scheduler.jobs()] == [True, False]
    said = cli("recover", job)
    assert said.code == Exit.USAGE
    assert "was brought back by incident 1 already" in said.err


def test_a_dry_run_names_every_change_with_what_the_policy_says(cli: Run, scheduler: LocalScheduler, home: Path) -> None:
    job = ended(scheduler, JobSpec("llm", ECC_SCRIPT, work_dir=home))
    (found,) = cli("recover", job, "--dry-run", "--json").objects
    assert (found["diagnosis"]["reason"], found["playbook"]) == ("ecc_error", "faulty_node")
    assert [(step["tool"], step["verdict"]) for step in found["steps"] if step["change"]] == [
        ("cordon_node", "ask"),
        ("resubmit_job", "ask"),
    ]
    assert [step["tool"] for step in found["steps"]][-2:] == ["job_progress", "loss_continues"]
    assert len(scheduler.jobs()) == 1
    assert set(states(scheduler).values()) == {NodeState.IDLE}
    assert cli("audit", "show", "--json").out == ""


def test_a_refused_step_hands_the_incident_to_a_person(cli: Run, scheduler: LocalScheduler, home: Path) -> None:
    job = ended(scheduler, JobSpec("llm", ECC_SCRIPT, work_dir=home))
    cli("recover", job)
    cli("deny", 1, "--why", "it is needed tomorrow")
    said = cli("resume", "--json")
    assert said.code == Exit.REFUSED
    assert said.objects[0]["state"] == "escalated"
    assert states(scheduler)["node01"] is NodeState.IDLE
    assert len(scheduler.jobs()) == 1


def test_a_pass_of_the_watch_opens_an_incident_and_changes_nothing_while_it_only_observes(
    cli: Run, scheduler: LocalScheduler, home: Path
) -> None:
    assert cli("watch", "--once").code == Exit.DONE
    ended(scheduler, JobSpec("llm", ECC_SCRIPT, work_dir=home))
    said = cli("watch", "--once", "--json")
    assert said.code == Exit.REFUSED
    assert [(one["job"], one["state"]) for one in said.objects] == [("1", "escalated")]
    assert set(states(scheduler).values()) == {NodeState.IDLE}
    again = cli("watch", "--once")
    assert (again.code, again.out) == (Exit.DONE, "")


def test_after_an_interruption_nothing_is_lost(home: Path) -> None:
    words = [sys.executable, "-m", "assistant", "logs", "tail", "-"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdin is not None
        command.stdin.write(b"a line\n")
        command.stdin.flush()
        time.sleep(1.0)
        command.send_signal(signal.SIGINT)
        said = command.stderr.read() if command.stderr else b""
    assert command.returncode == Exit.INTERRUPTED
    assert said == b"nightshift: interrupted; nothing is lost: nightshift resume\n"


def test_checkpoints_are_found_by_the_id_of_a_job(cli: Run, scheduler: LocalScheduler, home: Path) -> None:
    folder = home / "ckpt" / "checkpoint-100"
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text('{"global_step": 100}')
    (folder / "model.safetensors").write_bytes(b"")
    script = f"#!/bin/bash\n#NIGHTSHIFT checkpoints={folder.parent}\nexit 1\n"
    job = ended(scheduler, JobSpec("llm", script, work_dir=home))
    said = cli("checkpoints", "list", job, "--json")
    assert [(one["step"], one["healthy"]) for one in said.objects] == [(100, False)]
    assert f"{folder.parent} (#NIGHTSHIFT checkpoints= in the script)" in said.err
    assert cli("checkpoints", "verify", job).code == Exit.ERROR


@pytest.mark.parametrize(("log", "rows"), [("saved ckpt/lr1e-3_step000010.pt", 1), ("step 10 loss 2.1", 2)])
def test_checkpoints_of_another_run_in_the_folder_of_a_job(
    cli: Run, scheduler: LocalScheduler, home: Path, log: str, rows: int
) -> None:
    folder = home / "ckpt"
    folder.mkdir()
    for name in ("lr1e-3_step000010.pt", "lr3e-4_step000010.pt"):
        (folder / name).write_bytes(b"\x80" + bytes(9000))
    script = f"#!/bin/bash\n#NIGHTSHIFT checkpoints={folder}\necho '{log}'\nexit 1\n"
    listing = cli("checkpoints", "list", ended(scheduler, JobSpec("llm", script, work_dir=home)), "--json")
    assert len(listing.objects) == rows
    assert ("another run's" if rows == 1 else "its log names saves of none") in listing.err


def test_completion_in_a_broken_home_says_nothing(cli: Run, store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_path.parent.mkdir(parents=True)
    store_path.write_text("broken" * 1000)
    for name, value in {"_NIGHTSHIFT_COMPLETE": "complete_bash", "COMP_WORDS": "nightshift approve ", "COMP_CWORD": "2"}.items():
        monkeypatch.setenv(name, value)
    said = cli()
    assert (said.out, said.err) == ("", "")


def test_a_log_is_found_by_the_id_of_its_job(cli: Run, failed_job: str) -> None:
    assert "KeyError: 'lr'" in cli("logs", "tail", failed_job).out


def test_nothing_unfinished_is_nothing_to_resume(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("resume")
    assert (said.code, said.out) == (Exit.DONE, "")


def test_what_changes_nothing_asks_nothing_of_a_check(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "check", "-w", "node[01-02]")
    assert said.out.startswith(("NIGHTSHIFT NODES OK - 2 OK (node[01-02]) | nodes=2 ok=2", "NIGHTSHIFT NODES "))
    assert said.code in (0, 1, 2, 3)
    assert [one["node"] for one in cli("nodes", "check", "node01", "--json").objects] == ["node01"]


def test_the_doctor_looks_at_everything_and_goes_on_after_a_failure(cli: Run, scheduler: LocalScheduler, store_path: Path) -> None:
    names = [one["name"] for one in cli("doctor", "--json").objects]
    assert {"python", "hyperscan", "settings", "policy", "cache", "disk", "store", "audit", "scheduler"} <= set(names)
    store_path.unlink()
    store_path.write_text("broken" * 1000)
    said = cli("doctor", "--json")
    assert said.code == Exit.ERROR
    assert {one["name"]: one["health"] for one in said.objects}["store"] == "fail"
    assert "nightshift:" not in said.err


def on_a_terminal(words: list[str], answer: bytes) -> tuple[int, str]:
    """Run a command with a terminal for all of its streams and type an answer, key by key, once its question was read."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-m", "assistant", *words])
    said = b""
    try:
        while chunk := os.read(terminal, 4096):
            said += chunk
            if b"do it?" in said and answer:
                time.sleep(BEFORE_S + 0.3)
                for key in answer:
                    os.write(terminal, bytes([key]))
                    time.sleep(0.15)
                answer = b""
    except OSError:
        pass  # the terminal is gone: the command has ended
    finally:
        os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


@pytest.mark.parametrize(
    ("answer", "code", "state"), [(b"y\n", Exit.DONE, NodeState.DRAINED), (b"\n", Exit.REFUSED, NodeState.IDLE)]
)
def test_on_a_terminal_the_person_is_asked(scheduler: LocalScheduler, answer: bytes, code: int, state: NodeState) -> None:
    left_with, said = on_a_terminal(["nodes", "cordon", "node02", "--why", "fan is loud"], answer)
    assert "State=DRAIN" in said
    assert (left_with, states(scheduler)["node02"]) == (code, state)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("nightshift incid", {"incidents", "incident"}),
        ("nightshift nodes c", {"check", "cordon"}),
        ("nightshift nodes check node", {"node01", "node02", "node03", "node04"}),
        ("nightshift playbooks show faul", {"faulty_node"}),
        ("nightshift approve ", set()),
    ],
)
def test_a_shell_completes_commands_names_and_ids(
    cli: Run, scheduler: LocalScheduler, monkeypatch: pytest.MonkeyPatch, line: str, found: set[str]
) -> None:
    words = line.split() if not line.endswith(" ") else [*line.split(), ""]
    monkeypatch.setenv("_NIGHTSHIFT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    assert set(cli().out.split()) == found
