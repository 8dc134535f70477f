"""`nightshift report`: from a file, from standard input and from a live accounting, to the terminal, JSON, CSV and one page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from assistant.cli.main import install_command
from assistant.cli.output import Exit
from bench import _accounting
from tests.cli.conftest import Run
from tests.cli.test_extras import without_extras


@pytest.fixture
def sacct_file(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    _accounting.write(path, 400, "sacct")
    return path


def test_a_report_on_the_terminal(cli: Run, sacct_file: Path) -> None:
    said = cli("report", "cluster", sacct_file, "--zone", "Asia/Shanghai", "--name", "alpha")
    assert said.code == 0
    assert said.out.startswith("Where the GPU hours went: alpha\n")
    for words in ("What is unusual", "How it ended", "Shares beside five published clusters", "Submissions an hour", "█", "Philly"):
        assert words in said.out
    assert max(map(len, said.out.splitlines())) <= 140


def test_json_is_one_object_and_nothing_else(cli: Run, sacct_file: Path) -> None:
    said = cli("report", "cluster", sacct_file, "--json")
    (made,) = said.objects
    assert (made["schema"], made["report"], made["headline"]["jobs"]["value"]) == (1, "cluster", 400)


@pytest.mark.parametrize(
    "words",
    [
        ("--since", "2027-01-01", "--until", "2026-01-01"),
        ("--since", "2026-01-01", "--until", "2026-01-01"),
        ("--since", "1d", "--until", "2d"),
    ],
)
@pytest.mark.parametrize("kind", [("cluster",), ("failures",), ("job", "7"), ("cost", "--price", "2")])
def test_a_period_that_ends_before_it_begins_is_refused(
    kind: tuple[str, ...], words: tuple[str, ...], cli: Run, sacct_file: Path
) -> None:
    said = cli("report", *kind, sacct_file, *words)
    assert (said.code, said.out) == (Exit.USAGE, "")
    assert f"--since {words[1]!r} is 20" in said.err
    assert f"not before --until {words[3]!r}" in said.err


def test_an_end_before_the_default_period_says_that_a_beginning_is_wanted(cli: Run) -> None:
    said = cli("report", "cluster", "--until", "90d")
    assert said.code == Exit.USAGE
    assert "--since, of 30 days where it is not given" in said.err


def test_files_are_written(cli: Run, sacct_file: Path, tmp_path: Path) -> None:
    said = cli("report", "cluster", sacct_file, "--html", tmp_path / "a.html", "--csv", tmp_path / "figures")
    assert (said.code, said.out) == (0, "")
    assert (tmp_path / "a.html").read_text().endswith("</html>\n")
    assert (tmp_path / "figures" / "by_type.csv").read_text().startswith("type,jobs,")


MAP = """
seconds_from = 2023-01-01
[columns]
id = "n"
start = "b"
end = "e"
state = "s"
gpus = "g"
[states]
done = "completed"
"""


def test_a_trace_and_a_map(cli: Run, tmp_path: Path) -> None:
    trace, columns = tmp_path / "t.csv", tmp_path / "map.toml"
    trace.write_text("n,b,e,s,g\na,0,3600,done,2\nb,0,7200,done,1\n")
    columns.write_text(MAP)
    said = cli("report", "cluster", trace, "--columns", columns, "--json")
    assert said.objects[0]["headline"]["GPU hours"]["value"] == 4.0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--zone", "Mars/Olympus"), "no such zone"),
        (("--since", "soon"), "--since"),
        (("--until", "soon"), "--until"),
        (("--types", "nowhere.toml"), "nowhere.toml"),
        (("--html", "/nowhere/at/all.html"), "cannot be written"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(cli: Run, sacct_file: Path, words: tuple[str, ...], message: str) -> None:
    said = cli("report", "cluster", sacct_file, *words)
    assert said.code == Exit.USAGE
    assert message in said.err
    assert said.err.count("\n") == 1


def test_a_file_that_is_not_there(cli: Run) -> None:
    said = cli("report", "cluster", "/nowhere.txt")
    assert (said.code, "nowhere.txt" in said.err) == (Exit.USAGE, True)


def test_a_period_of_one_day(cli: Run, sacct_file: Path) -> None:
    said = cli("report", "cluster", sacct_file, "--since", "2023-05-01", "--until", "2023-05-02", "--json")
    (made,) = said.objects
    outside = next(row["rows"] for row in made["left_out"]["rows"] if row["kind"] == "outside the period")
    assert made["headline"]["jobs"]["value"] + outside == 400
    assert 0 < made["headline"]["jobs"]["value"] < 20


def test_without_its_extra_the_line_to_install_it_is_named(sacct_file: Path) -> None:
    done = without_extras("report", "cluster", str(sacct_file))
    assert done.returncode == Exit.ERROR
    assert install_command("report") in done.stderr
    assert "Traceback" not in done.stderr


PROGRAM = """
import sys
from assistant.cli.main import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", ["--help", "incidents", "report --help"])
def test_no_other_command_loads_reports(words: str, home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words.split()], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert not [name for name in loaded if name.startswith("assistant.reports") or name == "duckdb"]


SACCT = """#!{python}
import os, sys
words = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
if os.path.exists({broken!r}) and words["--starttime"] > open({broken!r}).read():
    sys.exit("sacct: error: Connection to slurmdbd refused")
begin, end = (int(words[key].removeprefix("uts")) for key in ("--starttime", "--endtime"))
columns, mark = words["--format"].split(","), words["--delimiter"]
print(mark.join(columns))
for n in range(3):
    at = begin + 3600 * (n + 1)
    fields = dict(JobIDRaw=at, JobID=at, User="ann", Account="a", Partition="p", State="COMPLETED", ExitCode="0:0", Submit=at - 20,
        Start=at - 10, End=at, NCPUS=8, AllocTRES="gres/gpu=2", ElapsedRaw=10, NodeList="node01",
        JobName="two\\nlines|and a bar", NNodes=1)
    print(mark.join(str(fields[column]) for column in columns))
"""


def live(folder: Path) -> tuple[Path, Path, Path]:
    """Return settings of a Slurm whose sacct has three jobs a day, the log of its calls, and the file that breaks it."""
    log, broken, bin_folder = folder / "calls.log", folder / "broken", folder / "bin"
    bin_folder.mkdir()
    program = bin_folder / "sacct"
    program.write_text(SACCT.format(python=sys.executable, log=str(log), broken=str(broken)))
    program.chmod(0o755)
    config = folder / "config.toml"
    config.write_text(f'scheduler = "slurm"\nstate_folder = "{folder}/state"\n[slurm]\nfolder = "{bin_folder}"\n')
    return config, log, broken


def test_the_live_accounting_is_asked_by_day_and_each_day_once(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assistant.reports.sacct_live.PAUSE", 0.0)
    config, log, _ = live(tmp_path)
    words = (
        "--config",
        config,
        "report",
        "cluster",
        "--since",
        "2026-03-01T00:00+00:00",
        "--until",
        "2026-03-06T00:00+00:00",
        "--json",
    )
    first = cli(*words)
    assert first.code == 0, first.err
    assert first.objects[0]["headline"]["jobs"]["value"] == 15
    calls = log.read_text().splitlines()
    assert len(calls) == 5
    assert all("--state=" in call and "--starttime=uts" in call and "--duplicates" in call for call in calls)
    again = cli(*words)
    assert again.objects == first.objects
    assert len(log.read_text().splitlines()) == 5
    kept = sorted((tmp_path / "state" / "accounting").iterdir())
    assert [path.name for path in kept] == [f"2026-03-0{day}.gz" for day in range(1, 6)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    # a day that was cut short is asked for again
    kept[2].write_bytes(kept[2].read_bytes()[:20])
    assert cli(*words).objects == first.objects
    assert len(log.read_text().splitlines()) == 6


def test_what_was_asked_before_a_failure_is_kept(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assistant.reports.sacct_live.PAUSE", 0.0)
    config, log, broken = live(tmp_path)
    broken.write_text("uts1772582399")  # 2026-03-03 23:59:59 UTC
    words = (
        "--config",
        config,
        "report",
        "cluster",
        "--since",
        "2026-03-01T00:00+00:00",
        "--until",
        "2026-03-06T00:00+00:00",
        "--json",
    )
    said = cli(*words)
    assert said.code == Exit.ERROR
    assert "2026-03-04 are not known" in said.err
    broken.unlink()
    calls = len(log.read_text().splitlines())
    assert cli(*words).objects[0]["headline"]["jobs"]["value"] == 15
    assert len(log.read_text().splitlines()) == calls + 2


def test_names_are_gone_where_asked(cli: Run, sacct_file: Path, tmp_path: Path) -> None:
    said = cli("report", "cluster", sacct_file, "--anonymise", "--name", "alpha", "--html", tmp_path / "a.html", "--json")
    shown = said.out + (tmp_path / "a.html").read_text()
    for name in ("u001", "team3", "sacct.txt", "alpha", str(tmp_path), os.uname().nodename):
        assert name not in shown
    assert json.loads(said.out)["figures"]["by_user"]["rows"][0]["user"] == "user 1"
