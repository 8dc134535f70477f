"""What Slurm prints comes out as what it means: every trap is a case file under tests/cases/slurm."""

from __future__ import annotations

import time
import tomllib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from assistant.errors import ToolError, Unavailable
from assistant.records import Job, JobSpec, JobState
from assistant.schedulers.slurm_completions import finished_rows
from assistant.schedulers.slurm_history import accounted_columns, accounted_rows, accounted_steps
from assistant.schedulers.slurm_jobs import (
    QUEUE_COLUMNS,
    SlurmRow,
    controller_lines,
    killer_in,
    moved,
    queue_format,
    queue_rows,
    waiting_row,
    waits_for,
)
from assistant.schedulers.slurm_nodes import configuration, node_facts, reservations, state_words
from assistant.schedulers.slurm_spec import (
    exported,
    job_spec,
    output_pattern,
    sbatch_words,
    shown_details,
    shown_options,
    with_carried,
    without_carried,
)
from assistant.schedulers.slurm_text import (
    Marks,
    canceller,
    exit_of,
    job_state,
    log_path,
    moment,
    owner_of,
    seconds,
    user_word,
)
from assistant.schedulers.slurm_typed import TypedSubmission, read_line
from assistant.untrusted import reading_as

CASES = Path(__file__).parents[1] / "cases" / "slurm"
MARKS = Marks("<f00d>")


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((CASES / name).read_text(encoding="utf-8"))


def words(key: str) -> list[Any]:
    return [pytest.param(case, id=str(case.get("text", case.get("pattern"))) or "empty") for case in table("words.toml")[key]]


def files(folder: str) -> list[Any]:
    return [pytest.param(f"{folder}/{path.name}", id=path.stem) for path in sorted((CASES / folder).glob("*.toml"))]


def marked(text: str) -> str:
    return text.removeprefix("\n").replace("$$", MARKS.record_end).replace(";;", MARKS.between)


def answer(case: dict[str, Any]) -> AbstractContextManager[object]:
    return pytest.raises(Unavailable, match="nothing") if case.get("unavailable") else nullcontext()


def none_if(value: int) -> int | None:
    return None if value == -1 else value


def check_rows(rows: list[SlurmRow], expected: list[dict[str, Any]]) -> None:
    assert [row.job.id for row in rows] == [one["id"] for one in expected]
    for row, wanted in zip(rows, expected, strict=True):
        for field, value in wanted.items():
            found = getattr(row.job, field)
            if isinstance(value, list):
                value = tuple(value)
            shown = found.isoformat() if isinstance(found, datetime) else str(found) if isinstance(found, Path) else found
            assert (shown or "") == value if value == "" else shown == value, f"{row.job.id}.{field}"


@pytest.mark.parametrize("case", words("state"))
def test_the_state_of_a_job_in_any_spelling(case: dict[str, str]) -> None:
    assert job_state(case["text"]).value == case["state"]


@pytest.mark.parametrize("case", words("exit"))
def test_exit_code_and_signal(case: dict[str, Any]) -> None:
    assert exit_of(case["text"], JobState(case["state"])) == (none_if(case["code"]), none_if(case["signal"]))


@pytest.mark.parametrize("case", words("limit"))
def test_a_limit_in_seconds(case: dict[str, Any]) -> None:
    assert seconds(case["text"]) == none_if(case["seconds"])


@pytest.mark.parametrize("case", words("log"))
def test_the_path_of_a_log(case: dict[str, str]) -> None:
    job_id = case.get("job", "4821")
    found = log_path(case["pattern"], raw_id="4821", job_id=job_id, name="llm", user="alice", node="gpu001.cluster")
    assert found == case["path"]


@pytest.mark.parametrize("case", words("node"))
def test_the_state_of_a_node_in_any_spelling(case: dict[str, str]) -> None:
    [facts] = node_facts(f"NodeName=n1 State={case['text']} Partitions=train")
    assert facts.state.value == case["state"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1795264972", datetime(2026, 11, 21, 12, 42, 52, tzinfo=UTC)),
        ("2026-11-21T12:42:52+00:00", datetime(2026, 11, 21, 12, 42, 52, tzinfo=UTC)),
        ("Unknown", None),
        ("N/A", None),
        ("0", None),
        ("yesterday", None),
    ],
)
def test_a_time_is_aware_or_absent(text: str, expected: datetime | None) -> None:
    assert moment(text) == expected


@pytest.mark.parametrize("name", files("queue"))
def test_the_jobs_of_squeue(name: str) -> None:
    case = table(name)
    with answer(case):
        check_rows(queue_rows(marked(case["text"]), MARKS), case["job"])


@pytest.mark.parametrize("name", files("accounting"))
def test_the_jobs_of_sacct(name: str) -> None:
    case = table(name)
    with answer(case):
        check_rows(accounted_rows(marked(case["text"]), MARKS, case["columns"]), case["job"])


@pytest.mark.parametrize("name", files("finished"))
def test_the_jobs_of_the_completion_log(name: str) -> None:
    case = table(name)
    for job_id, wanted in case["wanted"].items():
        rows = finished_rows(case["text"], job_id)
        assert [row.job.state for row in rows] == wanted["attempts"]
        assert [row.job.attempt for row in rows] == list(range(len(rows)))
        if rows:
            assert (rows[-1].job.exit_code, rows[-1].job.name) == (wanted["exit_code"], wanted["name"])


@pytest.mark.parametrize("name", files("nodes"))
def test_the_nodes_of_scontrol(name: str) -> None:
    case = table(name)
    with answer(case):
        facts = node_facts(case["text"].removeprefix("\n"))
        shown = [one.as_node(()) for one in facts]
        for fact, node, wanted in zip(facts, shown, case["node"], strict=True):
            assert (node.name, node.state, node.reason, node.partition) == tuple(
                wanted[key] for key in ("name", "state", "reason", "partition")
            )
            assert (fact.by, fact.cordon) == (wanted["by"], wanted.get("cordon"))


@pytest.mark.parametrize("case", [pytest.param(one, id=one["title"]) for one in table("details/details.toml")["case"]])
def test_the_options_that_the_controller_shows(case: dict[str, Any]) -> None:
    details = shown_details(case["text"], case["name"])
    assert list(shown_options(details)) == case["options"]
    spec = job_spec(a_job(case["name"]), details, "#!/bin/sh\n", pattern="", typed=TypedSubmission(), environment={})
    assert (spec is None) == ("spec" not in case)
    if spec is not None:
        assert case["spec"].get("doubt", "") in spec.doubt
        wanted = case["spec"]
        assert (spec.nodes, spec.ranks_per_node, list(spec.exclude)) == (
            wanted["nodes"],
            wanted["ranks_per_node"],
            wanted["exclude"],
        )
        assert spec.time_limit_s == wanted.get("time_limit_s")


@pytest.mark.parametrize("case", [pytest.param(one, id=one["line"] or "empty") for one in table("submissions/typed.toml")["case"]])
def test_the_options_of_a_line_as_typed(case: dict[str, Any]) -> None:
    script = case.get("script", "#!/bin/sh\nsrun python train.py $@\n")
    typed = read_line(case["line"], command=case["command"], script=script, fields=case.get("fields", {}))
    assert (list(typed.options or ()), list(typed.arguments)) == (case["options"], case["arguments"])
    assert bool(typed.doubt) == ("doubt" in case)
    assert case.get("doubt", "") in typed.doubt


DEPENDENCIES = table("submissions/typed.toml")["dependency"]


@pytest.mark.parametrize("case", [pytest.param(one, id=f"{one['text']} {one.get('task', '')}") for one in DEPENDENCIES])
def test_a_dependency_follows_another_job(case: dict[str, Any]) -> None:
    old, new = case.get("old", "10"), case.get("new", "77")
    assert waits_for(case["text"], old, task=case.get("task", "")) == case["kinds"]
    if case["kinds"] or "moved" in case:
        assert moved(case["text"], old, new, siblings=case.get("siblings", ())) == case["moved"]


@pytest.mark.parametrize(
    ("text", "old", "left"),
    [
        ("afterok:10(unfulfilled)", "10", ""),
        ("afterok:10_*(failed),afterany:12(unfulfilled)", "10_2", "afterany:12"),
        ("afterok:10:12", "10", "afterok:12"),
        ("afterok:110(unfulfilled)", "10", "afterok:110"),
    ],
)
def test_a_dependency_loses_a_job_whose_work_is_done(text: str, old: str, left: str) -> None:
    assert moved(text, old, "") == left


def test_alternatives_of_which_one_is_a_whole_array_are_not_moved() -> None:
    with pytest.raises(ToolError, match="alternatives"):
        moved("afterok:10_*(failed)?afterok:11(unfulfilled)", "10_2", "77_2")


@pytest.mark.parametrize(
    ("row", "dependency", "waiting"),
    [
        ("15_[1-3]", "aftercorr:12_*(unfulfilled)", "15_2"),
        ("15_[1,3-9%2]", "aftercorr:12_*(unfulfilled)", None),
        ("15_2", "aftercorr:12_*(failed)", "15_2"),
        ("15_3", "aftercorr:12_*(failed)", None),
        ("15_[1-3]", "afterok:12_*(failed)", "15_[1-3]"),
        ("16", "afterany:12_*(unfulfilled)", "16"),
        ("16", "afterany:12_2(unfulfilled)", None),
        ("16", "afternotok:12_*(unfulfilled)", None),
        ("16", "afterok:12_20(unfulfilled)", None),
        ("16", "afterok:112_2(unfulfilled)", None),
    ],
)
def test_what_waits_for_a_task_of_an_array(row: str, dependency: str, waiting: str | None) -> None:
    found = waiting_row(SlurmRow(replace(a_job("b"), id=row), row.partition("_")[0], dependency, ""), "12_2")
    assert (found.job.id if found is not None else None) == waiting


STEPS = """JobID;;State;;ExitCode;;SubmitLine;;NNodes
45+0;;FAILED;;0:9;;sbatch het.sh;;1
45+0.batch;;CANCELLED;;0:9;;;;1
45+0.extern;;COMPLETED;;0:0;;;;1
45+0.10;;CANCELLED by 0;;0:9;;srun bash -c true
false;;1
45+0.2;;FAILED;;3:0;;srun python3 x.py --out a;;1
45+1.2;;COMPLETED;;0:0;;srun python3 x.py --out a;;1
"""


def test_the_steps_of_a_job_are_read_with_their_codes_and_lines() -> None:
    steps = accounted_steps(STEPS.replace(";;", MARKS.between), MARKS)
    assert [(one.id, one.state, one.exit_code, one.signal) for one in steps] == [
        ("45+0.2", JobState.FAILED, 3, None),
        ("45+1.2", JobState.COMPLETED, 0, None),
        ("45+0.10", JobState.CANCELLED, None, 9),
    ]
    assert steps[2].command == "srun bash -c true\nfalse"
    with pytest.raises(Unavailable, match="nothing"):
        accounted_steps(STEPS.replace(";;", MARKS.between)[:-20], MARKS)


free = some.text(some.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)


@given(name=free, comment=free, folder=free)
def test_nothing_that_a_user_writes_breaks_the_table(name: str, comment: str, folder: str) -> None:
    values = dict.fromkeys(QUEUE_COLUMNS, "1") | {"State": "RUNNING", "Name": name, "Comment": comment, "WorkDir": folder}
    record = MARKS.between.join(values.values()) + MARKS.record_end + "\n"
    header = MARKS.between.join(QUEUE_COLUMNS) + MARKS.record_end + "\n"
    rows = queue_rows(header + record * 2, MARKS)
    assert [row.job.name for row in rows] == [name, name]


@given(name=free, line=free)
def test_nothing_that_a_user_writes_breaks_the_accounting(name: str, line: str) -> None:
    columns = accounted_columns(["JobID", "Restarts"])
    values = dict.fromkeys(columns, "1") | {"State": "FAILED", "JobName": name, "SubmitLine": line}
    text = "\n".join(MARKS.between.join(row) for row in (columns, values.values(), values.values())) + "\n"
    assert [row.job.name for row in accounted_rows(text, MARKS, columns)] == [name, name]


def test_each_question_has_its_own_separator() -> None:
    assert Marks().between != Marks().between
    assert queue_format(MARKS).endswith("Name:0<f00d>.")


def test_our_variables_travel_in_the_script_and_come_out_again() -> None:
    own = {"NIGHTSHIFT_STEP": "40", "NIGHTSHIFT_ARGS": "--load 'a b' \"c\"\n#"}
    script = "#!/bin/bash\n#SBATCH -N2\nsrun x\n"
    carried = with_carried(script, {**own, "WANDB_API_KEY": "secret"})
    assert "secret" not in carried
    assert carried.splitlines()[2] == "#SBATCH -N2"
    assert without_carried(carried) == (script, own)
    assert with_carried(carried, own) == carried
    assert without_carried("#!/bin/sh\n#NIGHTSHIFT_ENVIRONMENT garbage\n") == ("#!/bin/sh\n", {})
    assert with_carried("echo no first line\n", {}) == "#!/bin/bash\necho no first line\n"


def a_job(name: str = "llm", job_id: str = "30") -> Job:
    return Job(job_id, name, "bob", JobState.FAILED, "train", (), None, Path("/w"), None, None, None, 1, None)


def test_a_resubmission_says_what_was_asked_for_and_what_is_new() -> None:
    spec = JobSpec(
        "llm",
        "#!/bin/sh\n",
        nodes=4,
        ranks_per_node=8,
        work_dir=Path("/w"),
        log="%x-%j.out",
        partition="train",
        exclude=("gpu003", "gpu007"),
        comment="mine\nnightshift:3:14",
        time_limit_s=3601,
        options=("--gres=gpu:8", "--nodelist=gpu[001-004]", "--constraint=h100"),
        arguments=("--lr", "3e-4"),
        environment={"NIGHTSHIFT_STEP": "4"},
    )
    assert sbatch_words(spec, ["--get-user-env"]) == [
        "--parsable",
        "--get-user-env",
        "--gres=gpu:8",
        "--constraint=h100",
        "--job-name=llm",
        "--nodes=4",
        "--ntasks-per-node=8",
        "--chdir=/w",
        "--output=%x-%j.out",
        "--partition=train",
        "--exclude=gpu003,gpu007",
        "--comment=mine nightshift:3:14",
        "--time=61",
        "--export=ALL",
    ]


@pytest.mark.parametrize(
    ("directive", "options", "expected"),
    [
        ("", (), {"HOME": "/h", "A": "1", "B": "2"}),
        ("#SBATCH --export=ALL", (), {"HOME": "/h", "A": "1", "B": "2"}),
        ("#SBATCH --export=ALL,C=3", (), {"HOME": "/h", "A": "1", "B": "2", "C": "3"}),
        ("#SBATCH --export=NONE", (), {}),
        ("#SBATCH --export=NIL", (), {}),
        ("#SBATCH --export=A,HOME", (), {"A": "1"}),
        ("#SBATCH --export=NONE", ("--export=B,NIGHTSHIFT_STEP",), {"B": "2"}),
    ],
)
def test_a_job_gets_what_it_exports_and_our_variables(directive: str, options: tuple[str, ...], expected: dict[str, str]) -> None:
    environment = {"NIGHTSHIFT_STEP": "4", "A": "1", "B": "2", "BASH_ENV": "/x", "SBATCH_EXPORT": "NONE", "LD_PRELOAD": "/x.so"}
    spec = JobSpec("x", f"#!/bin/sh\n{directive}\n", environment=environment, options=options)
    assert exported(spec, {"HOME": "/h"}) == {**expected, "NIGHTSHIFT_STEP": "4", "SLURM_JOB_NAME": "x"}
    assert ("--get-user-env" in sbatch_words(spec)) == ("HOME" not in expected and "NIL" not in directive)
    assert [word for word in sbatch_words(spec) if word.startswith("--export")] == ["--export=ALL"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("*",), {"A", "PATH", "NCCL_DEBUG", "C"}),
        (("NCCL_*", "PATH"), {"PATH", "NCCL_DEBUG"}),
        ((), set()),
        (("nccl_*", "C"), {"C"}),
    ],
)
def test_a_site_narrows_what_a_job_gets_again(names: tuple[str, ...], expected: set[str]) -> None:
    limits = {"SLURM_RLIMIT_NOFILE": "U4096", "SLURM_RLIMIT_CORE": "0"}
    hostile = {"SLURM_RLIMIT_AS": "1 --uid=0", "SLURM_RLIMIT_x": "1", "SLURM_CONF": "/x", "LD_PRELOAD": "/x.so"}
    environment = {"A": "1", "PATH": "/p", "NCCL_DEBUG": "INFO", "NIGHTSHIFT_STEP": "4", **limits, **hostile}
    spec = JobSpec("x", "#!/bin/sh\n", environment=environment, options=("--export=ALL,C=3,LD_PRELOAD=/x.so",))
    made = exported(spec, {"HOME": "/h", "PATH": "/usual"}, names)
    assert made.keys() == expected | {"HOME", "PATH", "NIGHTSHIFT_STEP", "SLURM_JOB_NAME"} | limits.keys()
    assert made["PATH"] == ("/p" if "PATH" in expected else "/usual")
    words = [word for word in sbatch_words(spec, by_name=False, names=names) if word.startswith("--export=")]
    assert {item.partition("=")[0] for item in words[0].removeprefix("--export=").split(",")} == {
        "ALL",
        "NIGHTSHIFT_STEP",
    } | expected


def test_through_a_wrapper_variables_are_written_out() -> None:
    spec = JobSpec("x", "#!/bin/sh\n#SBATCH --export=A\n", environment={"NIGHTSHIFT_STEP": "4", "LD_PRELOAD": "/x.so"})
    assert [word for word in sbatch_words(spec, by_name=False) if "STEP" in word] == ["--export=A,NIGHTSHIFT_STEP=4"]
    assert [word for word in sbatch_words(replace(spec, environment={}), by_name=False) if "STEP" in word] == []


def test_the_output_of_a_script_is_found_where_the_line_does_not_say_it() -> None:
    script = '#!/bin/sh\n#SBATCH --output="logs/%j.out"\n#SBATCH -J x\n'
    typed = read_line("sbatch -o here.out a.sh -o of-the-script", command="/w/a.sh -o of-the-script", script=script, fields={})
    assert output_pattern(TypedSubmission(), script) == "logs/%j.out"
    assert output_pattern(typed, script) == "here.out"
    assert output_pattern(TypedSubmission(), "#!/bin/sh\n#SBATCH -J x -o y.out\n") == "y.out"


def test_reservations_are_listed_and_none_is_an_answer() -> None:
    text = (
        "ReservationName=nightshift-7 StartTime=1795264972 EndTime=1795265272 Duration=00:05:00 Nodes=gpu[002,004] NodeCnt=2"
        " Flags=SPEC_NODES Users=root,bob Groups=(null) State=ACTIVE\n"
    )
    [found] = reservations(text)
    assert (found.name, found.nodes, found.users, found.active) == ("nightshift-7", ("gpu002", "gpu004"), ("root", "bob"), True)
    assert reservations("No reservations in the system\n") == []
    with pytest.raises(Unavailable):
        reservations("")


def test_the_configuration_is_read_and_garbage_is_no_configuration() -> None:
    text = "Configuration data as of x\nJobCompLoc              = (null)\nMinJobAge = 300 sec\nSLURM_VERSION           = 25.11.0\n"
    assert configuration(text) == {"JobCompLoc": "", "MinJobAge": "300 sec", "SLURM_VERSION": "25.11.0"}
    with pytest.raises(Unavailable):
        configuration("slurm_load_ctl_conf error: nope")


def test_flags_of_old_tools_are_spelled_out() -> None:
    assert state_words("DOWN*+DRAIN") == {"DOWN", "NOT_RESPONDING", "DRAIN"}


@pytest.mark.parametrize(
    ("state", "who"),
    [
        ("CANCELLED by 0", "root"),
        ("CANCELLED by 4000000", "uid 4000000"),
        ("CANCELLED by 99999999999", ""),
        ("CANCELLED", ""),
        ("CANCELLED+", ""),
        ("FAILED by 0", ""),
    ],
)
def test_who_cancelled_a_job_is_read_from_its_state(state: str, who: str) -> None:
    assert canceller(state) == who


def test_of_the_controllers_log_only_its_own_lines_since_the_submission_name_who_ended_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    job = Job("5_2", "x", "ada", JobState.CANCELLED, "", (), None, None, datetime(2026, 3, 1, tzinfo=UTC), None, None, None, None)
    line = "[{}] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={} uid {}\n"
    earlier, other = line.format("2026-02-01T00:00:00.000", "5_2", 0), line.format("2026-03-02T00:00:00.000", "5_21", 0)
    forged = "[2026-03-02T00:00:00.000] job name: _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=5_2 uid 0\n"
    assert killer_in(earlier + other + forged, job) == ""
    own = line.format("2026-03-02T00:00:00.000", "5_2", 4_000_000)
    assert killer_in(own + earlier + other + forged, job) == "uid 4000000"
    assert killer_in(line.format("2026-03-02T00:00:00.000", "77", 0), replace(job, raw_id="77")) == "root"
    monkeypatch.undo()
    time.tzset()


def test_the_controllers_log_is_read_with_our_rights_and_not_the_job_owners(tmp_path: Path) -> None:
    log = tmp_path / "slurmctld.log"
    log.write_text("[2026-03-01T10:00:00.000] _job_complete: JobId=77 done\n", encoding="utf-8")
    log.chmod(0o600)
    with reading_as("nobody"):
        assert "JobId=77" in controller_lines(log, None)


@pytest.mark.parametrize(
    ("name", "uid", "owner"),
    [
        ("ada", "2001", "ada"),
        ("nobody", "2001", "uid 2001"),
        ("2001", "2001", "uid 2001"),
        ("", "77", "uid 77"),
        ("nobody", "65534", "nobody"),
        ("nobody", "", "nobody"),
        ("nobody", "(null)", "nobody"),
    ],
)
def test_an_owner_whom_the_machine_does_not_know_is_named_by_number(name: str, uid: str, owner: str) -> None:
    assert owner_of(name, uid) == owner
    assert user_word(owner) == (owner.removeprefix("uid ") if owner.startswith("uid ") else owner)


def test_the_completion_log_names_an_unknown_owner_by_number() -> None:
    line = "JobId=6 UserId=nobody(2007) GroupId=nobody(2007) Name=a JobState=FAILED Partition=p NodeList=n1 WorkDir=/w ExitCode=1:0"
    assert [row.job.user for row in finished_rows(line, "6")] == ["uid 2007"]
