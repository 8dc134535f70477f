"""What a program reads first, to go on behind it: it is no file that a rerun repeats, and people read how much of it is kept."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records.jobs import OpenFile, ProcessReport
from assistant.recover.job_program import programs_of
from assistant.recover.kept_work import kept_words, owner_quote
from assistant.recover.source.continued_lines import continued_by_lines, passing_lines
from assistant.recover.source.continued_work import continued_work
from assistant.recover.source.reruns import writes_of_job
from tests.unit.test_repeated_writes import COUNTS, FILLS, LEDGER, SKIPS, SLICES
from tests.unit.test_strangers_runs import BEGAN, ENDED, job

HANDED_ON = """import csv, os, sys
def graded(path):
    if not os.path.exists(path):
        return set()
    with open(path, newline="") as file:
        return {row["item"] for row in csv.DictReader(file)}
def main(path):
    finished = graded(path)
    with open(path, "a") as out:
        for item in range(9):
            if str(item) not in finished:
                out.write(f"{item},{ask(item)}")
main("ledger.jsonl")
"""
OF_OBJECT = """import json
from pathlib import Path
class Asker:
    def __init__(self, path):
        self.path = Path(path)
        self.had = {json.loads(line)["q"] for line in self.path.read_text().splitlines()}
    def go(self, items):
        for item in items:
            if item in self.had:
                continue
            with open("ledger.jsonl", "a") as out:
                out.write(item)
Asker("ledger.jsonl").go([])
"""
DIFFERENCE = """had = set(open("ledger.jsonl").read().split())
todo = set(open("inbox.txt").read().split()) - had
out = open("ledger.jsonl", "a")
for item in todo:
    out.write(item)
"""
ONLY_HEAD = """first = open("ledger.jsonl").readline()
if first != "id,score":
    raise SystemExit("another file")
out = open("ledger.jsonl", "a")
for item in range(9):
    out.write(str(item))
"""
OTHER_LIST = """banned = set(open("banned.txt").read().split())
out = open("ledger.jsonl", "a")
for item in range(9):
    if item in banned:
        continue
    out.write(str(item))
"""
SELF = """class Asker:
    def __init__(self):
        self.rows = open("ledger.jsonl").read()
        self.limit = 3
    def go(self, items):
        for item in items:
            if item > self.limit:
                continue
            open("ledger.jsonl", "a").write(item)
Asker().go([])
"""
STORE = """import sqlite3
db = sqlite3.connect("book.db")
db.execute("create table if not exists runs(n)")
made = db.execute("select count(*) from runs").fetchone()[0]
while made < 40:
    db.execute("insert into runs values (1)")
    made += 1
"""
CURSOR = STORE.replace(
    'made = db.execute("select count(*) from runs").fetchone()[0]',
    'cursor = db.cursor()\ncursor.execute("select n from runs")\nmade = len(cursor.fetchall())',
)
STUDY = """import optuna
study = optuna.create_study(storage="sqlite:///book.db", study_name="x", load_if_exists=True)
study.optimize(print, n_trials=9)
"""
APPENDS = """for item in range(9):
    with open("ledger.jsonl", "a") as out:
        out.write(f"{item}\\n")
"""
READS = "rows = open('ledger.jsonl').read().splitlines()\n"
LOOKS = (
    # a header, a summary, a listing, a limit, a word: tests and loops that have nothing to do with the item
    f'{READS}if not rows:\n    with open("ledger.jsonl", "a") as out:\n        out.write("id")\n{APPENDS}',
    f'{APPENDS}import csv\nwith open("ledger.jsonl") as file:\n    for row in csv.reader(file):\n        total = float(row[1])\n',
    f"{READS}for number, row in enumerate(rows):\n    print(row)\n{APPENDS}",
    f"{READS}n = 0\nwhile n < len(rows):\n    print(rows[n])\n    n += 1\n{APPENDS}",
    READS + APPENDS.replace("    with", "    if len(rows) > 10000:\n        continue\n    with"),
    READS + APPENDS.replace("    with", "    if 'banner' not in rows:\n        note(item)\n    with"),
    # read behind the work
    APPENDS + READS + "for item in range(9):\n    if item in rows:\n        continue\n    print(item)\n",
    # a key that no later start makes again
    READS
    + "import time\n"
    + APPENDS.replace("    with", "    key = f'{item}-{time.time()}'\n    if key in rows:\n        continue\n    with"),
    # emptied or removed first
    SKIPS + "open('ledger.jsonl', 'w').write('')\n",
    f"import os\n{SKIPS}os.remove('ledger.jsonl')\n",
    f"import os, sys\n{SKIPS}os.remove(sys.argv[1])\n",
)
STORE_LOOKS = (
    'import sqlite3\ndb = sqlite3.connect("book.db")\ntodo = db.execute("select i from items").fetchall()\n'
    'for row in todo:\n    db.execute("update items set s = s * 0.5 where i = ?", row)\n',
    'import sqlite3\ndb = sqlite3.connect("book.db")\nfor i in range(9):\n    db.execute("insert into r values (1)")\n'
    'rows = db.execute("select i from r").fetchall()\nfor n, row in enumerate(rows):\n    print(row)\n',
    STORE.replace("from runs", "from others"),
)
LINES = {
    **dict.fromkeys(LOOKS),
    **dict.fromkeys(STORE_LOOKS),
    SKIPS: ("ledger.jsonl", "work.py:2"),
    FILLS: ("ledger.jsonl", "work.py:3"),
    SLICES: ("ledger.jsonl", "work.py:1"),
    HANDED_ON: ("ledger.jsonl", "work.py:5"),
    OF_OBJECT: ("ledger.jsonl", "work.py:6"),
    DIFFERENCE: ("ledger.jsonl", "work.py:1"),
    STORE: ("book.db", "work.py:4"),
    CURSOR: ("book.db", "work.py:5"),
    STUDY: ("book.db", "work.py:2"),
    LEDGER: None,
    COUNTS: None,
    ONLY_HEAD: None,
    OTHER_LIST: None,
    SELF: None,
    STORE.replace("create table", "drop table runs; create table"): None,
    STORE.replace("while made < 40", "print(made)\nwhile True"): None,
    STORE.replace("import sqlite3", 'import os, sqlite3, sys\nif os.path.exists("book.db"):\n    sys.exit("there")'): None,
    STUDY.replace("True", "False"): None,
    STUDY.replace(", load_if_exists=True", ""): None,
}


@pytest.mark.parametrize("source", LINES, ids=range(len(LINES)))
def test_a_program_goes_on_behind_what_it_reads_first(source: str, tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(source)
    work = continued_work(programs_of(job(tmp_path, "python3 work.py\n")))
    wanted = LINES[source]
    assert [(entry.path, entry.place) for entry in work] == ([(f"{tmp_path}/{wanted[0]}", wanted[1])] if wanted is not None else [])


@pytest.mark.parametrize(
    ("source", "repeats"), [(SKIPS, False), (HANDED_ON, False), (LEDGER, True), (COUNTS, True), (OTHER_LIST, True)]
)
def test_what_a_program_reads_first_is_not_written_twice_though_a_process_had_it_open(
    source: str, repeats: bool, tmp_path: Path
) -> None:
    (tmp_path / "work.py").write_text(source)
    ledger = tmp_path / "ledger.jsonl"
    ledger.write_text("x\n")
    shown = job(tmp_path, "python3 work.py\n")
    file = OpenFile(ledger, "node01", 7, BEGAN, 1, 2, 2, appends=True)
    shown = replace(shown, processes=ProcessReport(BEGAN, files=(file,)))
    assert bool(writes_of_job(shown, programs_of(shown))) is repeats


PERL = """#!/usr/bin/perl
my ($in, $to) = @ARGV;
my %had;
if (open my $f, '<', "$to/FINISHED") { while (<$f>) { chomp; $had{$_} = 1 } close $f }
for my $name (glob "$in/*.gz") {
    next if exists $had{$name};
    open my $t, '>>', "$to/FINISHED"; print $t "$name\\n"; close $t;
}
"""
R = """had <- readLines("tiles.done")
for (tile in tiles) {
  if (tile %in% had) next
  cat(tile, file = "tiles.done", append = TRUE)
}
"""
SHELL = """for f in raw/*.tif; do
  out=tiles/$(basename $f)
  [ -s "$out" ] && continue
  gdalwarp $f $out
done
"""
JULIA = "for f in files\n    isfile(out(f)) && continue\n    run(f)\nend\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (PERL, [("*/FINISHED", "4")]),
        (R, [("tiles.done", "1")]),
        (SHELL, [("", "3")]),
        (JULIA, [("", "2")]),
        (PERL.replace("next if exists $had{$name};", "print $had{$name};"), []),
        (PERL.replace("'>>'", "'<'").replace("print $t", "print"), []),
        (R.replace("%in% had", "%in% banned"), []),
        (SHELL.replace("continue", "echo there"), []),
        (SHELL.replace("  [ -s", "  # [ -s"), []),
        ("x = next(rows)\ncontinue_from = 5\n", []),
        ("", []),
    ],
)
def test_of_other_languages_the_lines_that_pass_over_what_is_done_are_known(text: str, lines: list[tuple[str, str]]) -> None:
    assert [(entry.path, entry.place) for entry in passing_lines(text)] == lines


def touched(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    at = (BEGAN + timedelta(minutes=5)).timestamp()
    os.utime(path, (at, at))


def test_people_read_how_much_is_kept_by_which_line_and_what_the_owner_says(tmp_path: Path) -> None:
    (tmp_path / "pack.pl").write_text(PERL)
    touched(tmp_path / "to/FINISHED", "a\nb\nc\n")
    shown = job(
        tmp_path,
        "# needs gzip. Running it again only does what is missing.\nperl pack.pl in to\n",
    )
    assert [entry.place for entry in continued_by_lines(shown)] == ["pack.pl:4"]
    words = kept_words(shown, programs_of(shown), ENDED)
    assert words.startswith(
        "to/FINISHED is there (3 lines), and a start reads it first and passes over what stands in it (pack.pl:4)."
    )
    assert 'Line 2 of its script says: "Running it again' in words


def test_pieces_are_counted_where_a_script_passes_over_what_is_there(tmp_path: Path) -> None:
    for number in range(5):
        touched(tmp_path / f"tiles/t{number:03}.tif", "x")
    shown = job(tmp_path, SHELL)
    words = kept_words(shown, programs_of(shown), ENDED)
    sentence = "5 files like tiles/t004.tif are there, and a start passes over what is there (line 4 of its script)."
    assert words == f"{sentence} Leave it where it is."


@pytest.mark.parametrize(
    "line", ['[ -f "$f" ] || continue', 'if [ ! -f "$f" ]; then continue; fi', "next unless -e $f;", "next if not -s $f;"]
)
def test_a_test_for_what_is_missing_passes_over_no_work(line: str) -> None:
    assert list(passing_lines(f"for f in in/*; do\n{line}\n./solve $f\ndone\n")) == []


def test_nothing_is_told_where_nothing_is_there_or_nothing_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(SKIPS)
    shown = job(tmp_path, "python3 work.py\n")
    assert kept_words(shown, programs_of(shown), ENDED) == ""
    touched(tmp_path / "ledger.jsonl", "")
    assert kept_words(shown, programs_of(shown), ENDED) == ""
    (tmp_path / "work.py").write_text(LEDGER)
    touched(tmp_path / "ledger.jsonl", "x\n")
    assert kept_words(shown, programs_of(shown), ENDED) == ""


@pytest.mark.parametrize(
    ("comment", "is_quoted"),
    [
        ("# Rerun this script: it resumes with the next tile", True),
        ("# tiles that are finished already are skipped", True),
        ("# resubmit and it continues where it left off", True),
        ("# does not resume: rerun and it continues with tile 0", False),
        ("# never run this again, it will skip the checks", False),
        ("# TODO: rerun should resume", False),
        ("# rerun it with sudo rm -rf / and it continues", False),
        ("echo rerun this, it continues", False),
        ("# start of the tiles", False),
    ],
)
def test_an_owner_is_quoted_who_says_that_a_rerun_goes_on(comment: str, is_quoted: bool, tmp_path: Path) -> None:
    shown = job(tmp_path, f"{comment}\nperl x.pl\n")
    assert bool(owner_quote(shown, [])) is is_quoted
