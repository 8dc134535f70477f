"""The Slurm backend around programs that behave badly: they hang, print garbage, speak other languages, lack rights."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.config import SlurmSettings
from assistant.errors import ToolError, Unavailable
from assistant.ports import ControllerLog, Dependents, JumpingClock, Requeues, Reserves, SystemClock
from assistant.records import JobSpec, JobState
from assistant.schedulers.slurm import SlurmScheduler
from assistant.schedulers.slurm_history import ACCOUNTED_COLUMNS
from assistant.schedulers.slurm_jobs import QUEUE_COLUMNS, lines_about
from assistant.schedulers.slurm_rights import check
from assistant.schedulers.slurm_run import _as_descriptor, arguments_problem
from tests.unit.test_slurm_text import a_job

CONFIG = "SLURM_VERSION = 23.11.10\nAccountingStorageType = (null)\nMinJobAge = 300 sec\nSlurmUser = slurm(64030)\n"
IDLE = "NodeName=gpu001 State=IDLE Partitions=train\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program(tmp_path, "scontrol", f"case $2 in config) printf '{CONFIG}';; node) printf '{IDLE}';; *) exit 1;; esac")
    return tmp_path


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def squeue(folder: Path, *jobs: dict[str, str]) -> None:
    """Make a squeue that finds its separators in the words it gets, as the real one does."""
    plain = dict.fromkeys(QUEUE_COLUMNS, "(null)") | {"exit_code": "0", "RestartCnt": "0", "UserName": "bob", "WorkDir": "/w"}
    body = ['for word; do :; done; m=$(echo "$word" | grep -o "<[0-9a-f]*>" | head -n 1)']
    rows = [dict.fromkeys(QUEUE_COLUMNS, "HEAD"), *({**plain, **job} for job in jobs)]
    for row in rows:
        values = "%s".join(row.values())
        body.append(f"printf '{values}%s.\\n' {' '.join(['$m'] * len(row))}".replace("'%s", "'%s"))
    program(folder, "squeue", "\n".join(body))


def sacct(folder: Path, *jobs: dict[str, str]) -> None:
    """Let the controller name an accounting, and make a sacct that separates columns as it is told to."""
    config = CONFIG.replace("(null)", "accounting_storage/slurmdbd")
    program(
        folder, "scontrol", f"case $2 in config) printf '{config}';; *) echo 'error: Invalid job id specified' >&2; exit 1;; esac"
    )
    body = [f"[ $1 = --helpformat ] && echo {' '.join(ACCOUNTED_COLUMNS)} && exit"]
    body += ["for word; do case $word in --delimiter=*) m=${word#--delimiter=};; esac; done"]
    plain = dict.fromkeys(ACCOUNTED_COLUMNS, "") | {"ExitCode": "0:0", "User": "bob", "WorkDir": "/w", "Start": "1795264990"}
    for row in [dict.fromkeys(ACCOUNTED_COLUMNS, "HEAD"), *({**plain, **job} for job in jobs)]:
        body.append(f"echo '{';;'.join(row.values())}' | sed \"s/;;/$m/g\"")
    program(folder, "sacct", "\n".join(body))


READS_DATA = 'for word; do case $word in --export-file=*) tr "\\0" "\\n" < /proc/self/fd/${word#*=};; esac; done'
"""What a stand-in of sbatch prints: the environment of the job, one variable a line."""


def slurm(folder: Path, **settings: object) -> SlurmScheduler:
    made = SlurmSettings(folder=folder, users=("*",), **{"timeout_s": 5.0, **settings})  # type: ignore[arg-type]
    return SlurmScheduler(made, SystemClock())


def test_a_command_that_never_ends_costs_its_deadline_and_is_killed_with_its_children(folder: Path) -> None:
    program(folder, "squeue", f"sleep 300 & echo $! > {folder}/child; wait")
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not answer squeue .* within 0\.5 s, so nothing is known"):
        slurm(folder, timeout_s=0.5).jobs()
    assert time.monotonic() - began < 4
    child = int((folder / "child").read_text())
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}/stat").exists() and " Z " not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_slow_answer_within_the_deadline_counts(folder: Path) -> None:
    squeue(folder, {"JobArrayID": "7", "JobID": "7", "State": "RUNNING", "Name": "llm"})
    program(folder, "slow", "")
    (folder / "squeue").write_text((folder / "squeue").read_text().replace("#!/bin/sh\n", "#!/bin/sh\nsleep 0.3\n"))
    [job] = slurm(folder).jobs()
    assert (job.id, job.state) == ("7", JobState.RUNNING)


def test_bytes_that_are_no_text_cost_one_letter_each(folder: Path) -> None:
    squeue(folder, {"JobArrayID": "7", "JobID": "7", "State": "RUNNING", "Name": "caf\\351 \\377"})
    [job] = slurm(folder).jobs()
    assert job.name == "caf\ufffd \ufffd"


@pytest.mark.parametrize(
    "body",
    [
        "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        "echo 'slurm_load_jobs-Fehler: Kein Kontakt zum Controller' >&2; exit 1",
        "echo 'squeue: error: Invalid job format specification: Name' >&2; echo ';;'; exit 0",
        "echo 'squeue: error: Munge encode failed: Failed to access socket' >&2; exit 1",
        "exit 0",
        "printf '\\377\\376\\000garbage'",
        "kill -9 $$",
    ],
)
def test_a_failed_answer_is_unknown_never_no_jobs(folder: Path, body: str) -> None:
    program(folder, "squeue", body)
    with pytest.raises(Unavailable):
        slurm(folder).jobs()
    with pytest.raises(Unavailable):
        slurm(folder).job("7")


def test_a_program_that_is_missing_is_named_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"squeue is not in .*; set slurm\.folder"):
        slurm(tmp_path).jobs()


def test_only_slurms_own_word_makes_a_job_unknown(folder: Path) -> None:
    program(folder, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    with pytest.raises(ToolError, match="unknown to Slurm"):
        slurm(folder).job("7")
    for strange in ("", "../1", "7; rm -rf /", "--help", "7.batch", "seven"):
        with pytest.raises(ToolError, match="unknown to Slurm"):
            slurm(folder).job(strange)


def test_commands_speak_one_language_and_take_no_options_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "PD")
    monkeypatch.setenv("SLURM_BITSTR_LEN", "4")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    program(folder, "squeue", f"env > {folder}/seen; exit 1")
    with pytest.raises(Unavailable):
        slurm(folder, conf=folder / "slurm.conf").jobs()
    seen = (folder / "seen").read_text().splitlines()
    assert {"LC_ALL=C", "SLURM_TIME_FORMAT=%s", f"SLURM_CONF={folder}/slurm.conf"} <= set(seen)
    assert not [line for line in seen if line.startswith(("SQUEUE_", "SLURM_BITSTR_LEN"))]


def test_a_job_gets_the_environment_and_the_language_of_its_user_as_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    program(folder, "sbatch", f"env > {folder}/own; {READS_DATA} > {folder}/seen; cat > {folder}/script; echo '4821;cluster'")
    spec = JobSpec("llm", "#!/bin/sh\ntrue\n", environment={"NIGHTSHIFT_STEP": "4", "A": "b c"})
    assert slurm(folder).submit(spec) == "4821"
    seen = (folder / "seen").read_text().splitlines()
    assert {"LC_ALL=de_DE.UTF-8", "NIGHTSHIFT_STEP=4", "A=b c"} <= set(seen)
    assert "A=b c" not in (folder / "own").read_text().splitlines()
    assert (folder / "script").read_text().splitlines()[1] == '#NIGHTSHIFT_ENVIRONMENT {"NIGHTSHIFT_STEP": "4"}'


def test_a_script_with_arguments_is_a_file_that_is_gone_afterwards(folder: Path) -> None:
    program(folder, "sbatch", f'for word; do echo "$word"; done > {folder}/words; echo 5')
    assert slurm(folder).submit(JobSpec("llm", "#!/bin/sh\n", arguments=("--lr", "a b"))) == "5"
    *_, script, first, second = (folder / "words").read_text().splitlines()
    assert (first, second, Path(script).exists()) == ("--lr", "a b", False)


@pytest.mark.parametrize("body", ["echo Welcome; exit 0", "exit 0", "echo 'Socket timed out on send/recv operation' >&2; exit 1"])
def test_a_submission_whose_end_is_not_known_is_unknown(folder: Path, body: str) -> None:
    program(folder, "sbatch", body)
    with pytest.raises(Unavailable):
        slurm(folder).submit(JobSpec("llm", "#!/bin/sh\n"))


def test_a_submission_that_slurm_refuses_is_an_error_with_its_words(folder: Path) -> None:
    program(folder, "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1")
    with pytest.raises(ToolError, match=r"job 'llm' was refused by Slurm: .*Invalid qos"):
        slurm(folder).submit(JobSpec("llm", "#!/bin/sh\n"))


def test_a_job_of_somebody_else_needs_a_wrapper(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder, "sbatch", "echo 5")
    spec = JobSpec("llm", "#!/bin/sh\n", user="daemon", environment={"NIGHTSHIFT_STEP": "4"})
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(ToolError, match=r"belongs to daemon and .* slurm\.submit_as"):
        slurm(folder, lowest_uid=1).submit(spec)
    program(folder, "become", f'echo "$@" > {folder}/words; echo 5')
    wrapper = (str(folder / "become"), "-u", "{user}")
    assert slurm(folder, lowest_uid=1, submit_as=wrapper).submit(spec) == "5"
    assert "-u daemon" in (folder / "words").read_text()
    assert "--export=ALL,NIGHTSHIFT_STEP=4" in (folder / "words").read_text()


@pytest.mark.parametrize(
    "words",
    ["slurm_update error: Invalid user id", "sudo: a password is required", "slurm_update error: Access/permission denied"],
)
def test_a_missing_right_is_named_with_the_way_to_get_it(folder: Path, words: str) -> None:
    body = f"case $2 in node) printf '{IDLE}';; *) echo '{words}' >&2; exit 1;; esac"
    program(folder, "scontrol", body)
    with pytest.raises(ToolError, match=r"slurm\.admin"):
        slurm(folder).cordon("gpu001", "nightshift:1:2 ecc_error")


def test_a_wrapper_stands_before_changes_of_nodes_only(folder: Path) -> None:
    program(folder, "wrap", f'printf "%s\\n" "$*" >> {folder}/words')
    slurm(folder, admin=(str(folder / "wrap"), "-n")).cordon("gpu001", "nightshift:1:2 ecc")
    [line] = (folder / "words").read_text().splitlines()
    assert line == f"-n {folder}/scontrol update NodeName=gpu001 State=DRAIN Reason=nightshift:1:2 ecc"


def test_jobs_go_on_while_the_accounting_is_down(folder: Path) -> None:
    squeue(folder)
    config = CONFIG.replace("(null)", "accounting_storage/slurmdbd")
    program(folder, "scontrol", f"printf '{config}'")
    program(folder, "sacct", "echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1")
    assert slurm(folder).jobs() == []
    with pytest.raises(Unavailable):
        slurm(folder).job("7")


def test_tasks_that_wait_as_one_no_more_are_unknown_and_sacct_is_not_asked_for_them(folder: Path) -> None:
    squeue(folder, {"JobArrayID": "7_3", "JobID": "9", "State": "RUNNING"})
    config = CONFIG.replace("(null)", "accounting_storage/slurmdbd")
    program(folder, "scontrol", f"printf '{config}'")
    program(folder, "sacct", "echo 'sacct: fatal: Bad job array element specified: 7' >&2; exit 1")
    with pytest.raises(ToolError, match=r"job '7_\[3-5\]' is unknown to Slurm"):
        slurm(folder).job("7_[3-5]")


def test_an_array_known_by_its_tasks_is_no_job_of_its_own_whatever_the_accounting_has(folder: Path) -> None:
    tasks = [
        {"JobArrayID": f"7_{task}", "JobID": raw, "State": "FAILED", "exit_code": "256"} for task, raw in (("0", "8"), ("5", "7"))
    ]
    squeue(folder, *tasks)
    sacct(folder, {"JobIDRaw": "7", "JobID": "7", "State": "PENDING"})
    with pytest.raises(ToolError, match=r"job '7' is unknown to Slurm; tasks and parts of it: 7_5, 7_0"):
        slurm(folder).job("7")
    assert slurm(folder).job("7_5").state is JobState.FAILED


@pytest.mark.parametrize(("task", "named"), [("7_5", "7_5"), ("7_0", "7_0"), ("7", "7")])
def test_a_command_about_the_last_task_of_an_array_names_no_other(folder: Path, task: str, named: str) -> None:
    """Its raw id is the array's: `scontrol requeue 7` would queue each of its tasks again, also those that ended well or run."""
    array = [{"JobArrayID": "7_0", "JobID": "8", "State": "RUNNING"}, {"JobArrayID": "7_5", "JobID": "7", "State": "FAILED"}]
    squeue(folder, *(array if "_" in task else [{"JobArrayID": "7", "JobID": "7", "State": "FAILED"}]))
    program(
        folder,
        "scontrol",
        f"printf '%s\\n' \"$*\" >> {folder}/words; case $2 in config) printf '{CONFIG}';; node) printf '{IDLE}';; esac",
    )
    cluster = slurm(folder)
    cluster.requeue(task, hold=True)
    cluster.requeue(task, exclude=("gpu003",), comment="nightshift:1:2")
    lines = [line for line in (folder / "words").read_text().splitlines() if line.split()[0] != "show"]
    assert [line for line in lines if "requeuehold" in line] == [f"requeuehold {named}"] * 2
    assert f"update JobId={named} ExcNodeList=gpu003 Comment=nightshift:1:2" in lines
    assert {line for line in lines if line.startswith("release")} == {f"release {named}"}


def test_a_row_of_a_whole_array_that_never_ends_is_no_job(folder: Path) -> None:
    squeue(folder)
    whole = {"JobIDRaw": "7", "JobID": "7", "State": "PENDING"}
    sacct(folder, whole, {"JobIDRaw": "8", "JobID": "7_0", "State": "FAILED", "End": "1795265000"})
    with pytest.raises(ToolError, match="unknown to Slurm"):
        slurm(folder).job("7")
    assert slurm(folder).job("7_0").state is JobState.FAILED


@pytest.mark.parametrize("said", ["RUNNING", "PENDING"])
def test_a_job_that_the_controller_forgot_and_whose_end_was_not_told_is_unknown(folder: Path, said: str) -> None:
    program(folder, "squeue", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    sacct(folder, {"JobIDRaw": "7", "JobID": "7", "State": said})
    job = slurm(folder).job("7")
    assert (job.state, job.ended, job.exit_code) == (JobState.UNKNOWN, None, None)
    assert job.reason == f"the controller has forgotten it; the accounting was not told how it ended and says {said.lower()}"


def test_a_job_that_is_forgotten_between_two_questions_keeps_what_was_seen(folder: Path) -> None:
    squeue(folder, {"JobArrayID": "7", "JobID": "7", "State": "FAILED", "exit_code": "256", "Name": "llm"})
    sacct(folder)
    job = slurm(folder).job("7")
    assert (job.name, job.state, job.exit_code) == ("llm", JobState.FAILED, 1)


def test_a_job_that_is_queued_again_is_not_taken_from_what_the_accounting_has_of_it(folder: Path) -> None:
    squeue(folder, {"JobArrayID": "7", "JobID": "7", "State": "COMPLETING", "RestartCnt": "1", "NodeList": "gpu001"})
    sacct(folder, {"JobIDRaw": "7", "JobID": "7", "State": "PREEMPTED", "End": "1795265000"})
    cluster = slurm(folder)
    [listed] = cluster.jobs()
    for job in (listed, cluster.job("7")):
        assert (job.state, job.attempt, job.nodes) == (JobState.PENDING, 1, ())


def test_a_reservation_that_ran_out_while_it_was_ended_is_no_error(folder: Path) -> None:
    shown = "ReservationName=nightshift-7 StartTime=1 EndTime=2 Nodes=gpu001 Users=root State=ACTIVE"
    gone = f"[ -e {folder}/gone ] && echo 'No reservations in the system' || echo '{shown}'"
    delete = f"touch {folder}/gone; echo 'delete_reservation error: Requested reservation is invalid' >&2; exit 1"
    program(folder, "scontrol", f"case $1 in show) {gone};; *) {delete};; esac")
    slurm(folder).unreserve("nightshift-7")
    assert (folder / "gone").exists()


def test_the_accounting_is_asked_now_and_then_not_at_each_look(folder: Path) -> None:
    squeue(folder)
    config = CONFIG.replace("(null)", "accounting_storage/slurmdbd")
    program(folder, "scontrol", f"printf '{config}'")
    program(folder, "sacct", f"[ $1 = --helpformat ] && echo JobID || {{ echo asked >> {folder}/asked; exit 1; }}")
    clock = JumpingClock(SystemClock().now())
    cluster = SlurmScheduler(SlurmSettings(folder=folder), clock)
    for _ in range(5):
        assert cluster.jobs() == []
        clock.sleep(30)
    assert len((folder / "asked").read_text().splitlines()) == 2


def test_it_can_all_that_a_scheduler_may(folder: Path) -> None:
    assert all(isinstance(slurm(folder), kind) for kind in (ControllerLog, Dependents, Requeues, Reserves))


def test_the_doctor_says_what_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    found = list(check(slurm(folder, controller_log=folder / "none.log")))
    assert [one.works for one in found] == [True, False, False, False]
    assert [one.text.split(":")[0] for one in found[:2]] == ["version 23.11.10", "no accounting"]
    assert "5 min" in found[1].text
    assert "nodes cannot be drained" in found[2].text
    assert "AdminLevel=Administrator" in found[2].todo


def test_the_controllers_lines_are_those_of_the_job_and_its_nodes() -> None:
    text = "\n".join(
        [
            "[2026-11-21T10:00:00.000] Nodes gpu[001-004] not responding",
            "[2026-11-21T10:00:01.000] _job_complete: JobId=30 WEXITSTATUS 1",
            "[2026-11-21T10:00:02.000] _job_complete: JobId=301 done",
            "[2026-11-21T10:00:03.000] error: Nodes gpu[003,007] not responding, setting DOWN",
            "[2026-11-21T10:00:04.000] update_node: node gpu003 reason set to: x",
            "[2026-11-21T10:00:05.000] node gpu0031 returned to service",
        ]
    )
    kept = lines_about(text, replace(a_job(), nodes=("gpu003",))).splitlines()
    assert [line[12:20] for line in kept] == ["10:00:00", "10:00:01", "10:00:03", "10:00:04"]


def test_what_befell_a_node_before_the_job_ran_there_is_not_of_the_job() -> None:
    started = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    stamps = [started + timedelta(minutes=minutes) for minutes in (-3, 2)]
    text = "\n".join(f"[{at.astimezone():%Y-%m-%dT%H:%M:%S}.000] error: Nodes gpu003 not responding, setting DOWN" for at in stamps)
    job = replace(a_job(), nodes=("gpu003",), submitted=started - timedelta(minutes=5), started=started)
    assert lines_about(text, job).splitlines() == text.splitlines()[1:]


@pytest.mark.parametrize(
    ("words", "arguments", "problem"),
    [
        ((), ("a.json",), False),
        (("sudo", "-n", "-u", "{user}"), ("a.json",), True),
        (("sudo", "-n", "-u", "{user}"), (), False),
        (("/usr/sbin/runuser", "-u", "{user}", "--"), ("a.json",), False),
    ],
)
def test_a_script_with_arguments_is_handed_to_another_user_where_a_descriptor_reaches_sbatch(
    words: tuple[str, ...], arguments: tuple[str, ...], *, problem: bool
) -> None:
    spec = JobSpec("x", "#!/bin/sh\n", user="somebody-else", arguments=arguments)
    assert bool(arguments_problem(SlurmSettings(submit_as=words), spec)) is problem


def test_what_sbatch_reads_from_a_descriptor_is_readable_by_the_owner_and_changed_by_nobody() -> None:
    with _as_descriptor("nightshift-script", ["#!/bin/sh\n", "true\n"]) as number:
        path = Path(f"/proc/self/fd/{number}")
        assert path.read_text() == "#!/bin/sh\ntrue\n"
        assert path.stat().st_mode & 0o777 == 0o444
        with pytest.raises(PermissionError):
            os.pwrite(number, b"rm", 0)


def test_an_owner_whom_this_machine_does_not_know_is_asked_for_by_number_once(folder: Path) -> None:
    squeue(folder, {"JobArrayID": "7", "JobID": "7", "State": "RUNNING", "UserName": "nobody"})
    table = (folder / "squeue").read_text(encoding="utf-8").removeprefix("#!/bin/sh\n")
    numbers = "printf 'JOBID%sUSER ID%s.\\n7%s2001%s.\\n' $m $m $m $m"
    marked = 'for word; do :; done; m=$(echo "$word" | grep -o "<[0-9a-f]*>" | head -n 1)'
    program(folder, "squeue", f'case "$*" in *UserID*) echo x >>{folder}/asked; {marked}; {numbers}; exit;; esac\n{table}')
    cluster = slurm(folder)
    assert [cluster.jobs()[0].user, cluster.jobs()[0].account] == ["uid 2001"] * 2
    assert (folder / "asked").read_text(encoding="utf-8") == "x\n"


def ending(folder: Path, refuses: str, answer: str) -> SlurmScheduler:
    """Return a Slurm with job 7, whose scancel refuses some words and ends the job with its last ones alone."""
    row = {"JobArrayID": "7", "JobID": "7", "Name": "llm"}
    squeue(folder, {**row, "State": "CANCELLED"})
    (folder / "squeue").rename(folder / "squeue.ended")
    squeue(folder, {**row, "State": "RUNNING"})
    text = (folder / "squeue").read_text()
    steps = (
        f'case "$*" in *--steps*) exit;; *%T*) echo RUNNING; exit;; esac; [ -e {folder}/over ] && exec {folder}/squeue.ended "$@"'
    )
    (folder / "squeue").write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\n{steps}\n"))
    refusal = f'echo "scancel: error: Kill job error on job id 7: {answer}" >&2; exit 1'
    body = f'echo "$*" >> {folder}/given; case "$*" in {refuses}) {refusal};; esac'
    program(folder, "scancel", f'{body}\n[ "$*" = 7 ] && touch {folder}/over; exit 0')
    return slurm(folder)


@pytest.mark.parametrize("refuses", ["--signal=STOP*", "*--batch*", "--signal=STOP*|*--batch*"])
def test_an_end_goes_on_behind_a_signal_that_came_too_early_or_too_late(refuses: str, folder: Path) -> None:
    ending(folder, refuses, "Invalid job id specified").end_at_once("7")
    assert (folder / "given").read_text().splitlines() == ["--signal=STOP --full 7", "--batch --signal=KILL 7", "7"]


def test_an_end_without_the_right_to_it_is_refused_at_the_first_command(folder: Path) -> None:
    with pytest.raises(ToolError, match=r"to end job 7 was refused by Slurm.*Access/permission denied"):
        ending(folder, "*", "Access/permission denied").end_at_once("7")
    assert (folder / "given").read_text().splitlines() == ["--signal=STOP --full 7"]


def test_an_end_that_slurm_refuses_to_the_last_is_no_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assistant.schedulers.slurm.SETTLE_S", 0.5)
    with pytest.raises(ToolError, match="Invalid job id specified"):
        ending(folder, "*", "Invalid job id specified").end_at_once("7")
