"""One log, several runs: where each begins, what counts in it, and how the last one ended. In formats that nothing here knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.runs import find_counters, keyed_lines, same_counter, split_runs
from assistant.diagnose.verdict import judge
from assistant.diagnose.weighing.outcome import How, outcome_of
from assistant.logs.lines import Line
from assistant.records import Diagnosis


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def lines_of(text: str) -> list[Line]:
    return [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]


def facts_of(text: str, folder: Path, knowledge: Knowledge, **others: str) -> Facts:
    (folder / "job.log").write_text(text, encoding="utf-8")
    for name, more in others.items():
        (folder / f"{name}.err").write_text(more, encoding="utf-8")
    return gather(Case.from_path(folder if others else folder / "job.log"), knowledge)


STARTS = """\
bakery simulation, version 3
reading flour table
reading oven table
mixing with 4 workers
warming the ovens
"""
WORK = "".join(f"tray {number} of 400 out, crumb {9 - number / 50:.3f}\n" for number in range(1, 30))
TRACEBACK = """\
Traceback (most recent call last):
  File "/work/bakery.py", line 12, in <module>
    bake(table["rye"])
KeyError: 'rye'
"""


def runs_of(text: str, tracebacks: tuple[tuple[int, int], ...] = (), steps: tuple[int, ...] = ()) -> list[int]:
    return [run.first for run in split_runs(keyed_lines(lines_of(text)), tracebacks, steps)]


def test_a_log_that_begins_again_behind_an_end_holds_two_runs() -> None:
    first = STARTS + TRACEBACK
    begins = len(first.splitlines()) + 1
    assert runs_of(first + STARTS + WORK, ((6, 9),)) == [1, begins]


@pytest.mark.parametrize(
    ("head", "times", "runs"),
    [("Lade Modul ofen/3.1\nLade Modul teig/2\n", 2, 2), ("using oven 3\n", 3, 3), ("using oven 3\n", 2, 1)],
)
def test_a_short_beginning_comes_again_behind_a_traceback(head: str, times: int, runs: int) -> None:
    text = (head + TRACEBACK) * times
    first = len(head.splitlines()) + 1
    block = first + 3
    places = tuple((first + block * turn, block * (turn + 1)) for turn in range(times))
    assert runs_of(text, places) == [1 + block * turn for turn in range(runs)]


def test_items_that_a_loop_names_are_no_beginning() -> None:
    items = "".join(f"baking rye {number}\nheating to 240\n{TRACEBACK}" for number in range(4))
    assert runs_of(items, tuple((3 + 6 * turn, 6 + 6 * turn) for turn in range(4))) == [1]


def test_lines_of_each_epoch_are_no_beginning() -> None:
    lines = ("shuffling the pages", "loading the pages", "sorting the pages", "page 1 read")
    epochs = "".join("\n".join((f"epoch {number}", *lines, "")) for number in range(9))
    assert runs_of(epochs, steps=tuple(range(1, 40))) == [1]


def test_ranks_that_fail_alike_are_one_run() -> None:
    ranks = "".join(f"[rank{rank}]: {line}\n" for rank in range(4) for line in TRACEBACK.splitlines())
    inside = tuple((6 + 4 * rank, 9 + 4 * rank) for rank in range(4))
    assert runs_of(STARTS + ranks, inside) == [1]


def test_a_form_whose_number_rises_counts_and_its_other_numbers_do_not() -> None:
    (counter,) = find_counters(keyed_lines(lines_of(STARTS + WORK)))
    assert counter.values[:3] == (1.0, 2.0, 3.0)
    assert counter.before(10) == 5
    assert counter.after(30) == 4


TOLD_OFF = (
    "Killing subprocess {n}",
    "rank {n} has left",
    "retry {n} of 9",
    "Sending process {n} closing signal SIGTERM",
    "GPU {n} ok",
)


@pytest.mark.parametrize("line", TOLD_OFF)
def test_what_is_told_off_one_after_another_is_no_work(line: str) -> None:
    assert find_counters(keyed_lines(lines_of("".join(f"{line.format(n=number)}\n" for number in range(1, 9))))) == ()


ENDS = {
    "counts to its last": (STARTS + "".join(f"tray {n} of 30 out\n" for n in range(1, 31)), How.FINISHED),
    "says that it is done": (f"{STARTS}{WORK}baking finished, all trays are out\nevaluation complete\n", How.FINISHED),
    "goes on": (STARTS + WORK, How.GOES_ON),
    "killed behind a bar": (f"{STARTS}{WORK}tray 31 of 400 |==>   |Killed\n", How.KILLED),
    "interrupted": (f"{STARTS}{WORK}^C\nKeyboardInterrupt\n", How.STOPPED),
    "a signal from outside": (f"{STARTS}{WORK}main process received SIGHUP, leaving\n", How.STOPPED),
    "an exception": (STARTS + WORK + TRACEBACK, How.FAILED),
    "a usage error": ("usage: bakery [-h] TABLE\nbakery: error: the following arguments are required: TABLE\n", How.FAILED),
    "PBS, well": (f"{STARTS}{WORK}connect: Connection refused\n   Exit Status:        0\n", How.FINISHED),
    "PBS, badly": (f"{STARTS}{WORK}   Exit Status:        1\n", How.FAILED),
    "LSF, well": (f"{STARTS}{WORK}Successfully completed.\n", How.FINISHED),
    "nothing of all this": (STARTS, How.NOTHING_WRONG),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_run_ended_is_told_from_its_end(name: str, tmp_path: Path, knowledge: Knowledge) -> None:
    text, how = ENDS[name]
    assert outcome_of(facts_of(text, tmp_path, knowledge)).how is how


def test_an_earlier_run_of_the_file_is_history(tmp_path: Path, knowledge: Knowledge) -> None:
    found = judge(facts_of(STARTS + TRACEBACK + STARTS + WORK, tmp_path, knowledge), knowledge)
    assert found.reason == "no_failure", found.summary
    found = judge(facts_of(STARTS + WORK + STARTS + TRACEBACK, tmp_path, knowledge), knowledge)
    assert found.reason == "key_error", found.summary


def test_an_exception_after_the_last_work_is_never_fine(tmp_path: Path, knowledge: Knowledge) -> None:
    found = judge(facts_of(f"{STARTS}{WORK}evaluation complete\n{TRACEBACK}", tmp_path, knowledge), knowledge)
    assert found.reason == "key_error", found.summary


def test_output_and_error_of_a_folder_are_read_together(tmp_path: Path, knowledge: Knowledge) -> None:
    found = judge(facts_of(STARTS + WORK, tmp_path, knowledge, job=TRACEBACK), knowledge)
    assert (found.reason, found.root_cause[0].file, found.root_cause[0].line) == ("key_error", "job.err", 4)


def test_a_plain_line_of_the_error_file_does_not_end_a_run_that_finished(tmp_path: Path, knowledge: Knowledge) -> None:
    done = STARTS + "".join(f"tray {number} of 30 out\n" for number in range(1, 31))
    found = judge(facts_of(done, tmp_path, knowledge, job="job.sh: line 3: activate: No such file or directory\n"), knowledge)
    assert found.reason == "no_failure", found.summary


def test_a_loss_that_never_was_a_number_is_seen_at_the_first_steps(tmp_path: Path, knowledge: Knowledge) -> None:
    text = "".join(f"step {number} loss nan grad_norm nan\n" for number in range(1, 9))
    assert judge(facts_of(text, tmp_path, knowledge), knowledge).reason == "loss_spike"


@pytest.mark.parametrize(
    ("form", "last"),
    [
        ("Train Epoch: 0 [{n}00/10000] Contrastive_loss: 6.1", 900),
        ("processed {n}000 sequences in 3.1 s", 9000),
        ("tick {n}     kimg 48.0", 9),
        ("heartbeat {n} of the supervisor", None),  # goes on while nothing is trained
        ("pid {n} started step", None),
    ],
)
def test_what_a_program_counts_in_both_attempts_is_compared(form: str, last: int | None) -> None:
    before = lines_of("".join(f"{form.format(n=number)}\n" for number in range(1, 10)))
    after = lines_of("".join(f"{form.format(n=number)}\n" for number in range(5, 30)))
    both = same_counter(before, after)
    assert (max(both[0].values) if both else None) == last
    assert both is None or max(both[1].values) > max(both[0].values)


def test_counters_of_two_forms_are_not_compared() -> None:
    before = lines_of("".join(f"step number {number}\n" for number in range(1, 10)))
    after = lines_of("".join(f"sample {number}00 of many\n" for number in range(1, 30)))
    assert same_counter(before, after) is None


def answer_of(text: str, folder: Path, knowledge: Knowledge) -> Diagnosis:
    return judge(facts_of(text, folder, knowledge), knowledge)


def test_a_last_start_that_shows_no_work_is_not_called_done(tmp_path: Path, knowledge: Knowledge) -> None:
    head = "Lade Modul ofen/3.1\nLade Modul teig/2.2\n"
    answer = answer_of((head + TRACEBACK) * 3 + head, tmp_path, knowledge)
    assert answer.reason == "no_failure"
    assert "The last of the 4 starts in this file, from line 19 on, shows no work yet" in answer.advice
    assert "The one before it failed: KeyError: 'rye' (job.log:18)" in answer.advice
    assert "Nothing has to be done" not in answer.advice


def test_a_version_is_no_count_up_to_the_last(tmp_path: Path, knowledge: Knowledge) -> None:
    assert not outcome_of(facts_of(STARTS + "Loaded module: python3/3.7.5\n", tmp_path, knowledge)).counted


def test_verdicts_behind_the_end_of_the_work_are_results(tmp_path: Path, knowledge: Knowledge) -> None:
    rows = 'rye-oven1: Passed\nrye-oven2: Failed w/ error "crumb"\nwheat-oven1: Passed\nwheat-oven2: Passed\n'
    ended = answer_of(STARTS + WORK + "All tests completed.\n" + rows, tmp_path, knowledge)
    assert ended.reason == "no_failure"
    assert "Of the 4 items that it lists 1 failed: rye-oven2" in ended.advice
    assert outcome_of(facts_of(STARTS + rows.replace("Passed", "Failed"), tmp_path, knowledge)).how is How.FAILED


@pytest.mark.parametrize("row", ["{n:6d} {x:.6e} {y:.6f} 0fcfa1eb", "{n}, {x:.4f}, {y:.4f}", "| {n} | {x:.3f} |"])
def test_rows_of_a_table_without_words_count(row: str) -> None:
    rows = "".join(row.format(n=number, x=3 / number, y=0.5 + number / 400) + "\n" for number in range(1, 60))
    (counter,) = find_counters(keyed_lines(lines_of("# new run\n" + rows)))
    assert counter.values[-1] == 59.0
    assert counter.after(30) == 30


def test_dates_and_lists_are_no_rows_of_a_table() -> None:
    dates = "".join(f"2026-03-{day:02d} 10:00:0{day % 10}.125 oven\n" for day in range(1, 20))
    assert find_counters(keyed_lines(lines_of(dates))) == ()


def test_checksums_do_not_tell_lines_of_one_form_apart() -> None:
    rows = "".join(f"{number:6d}  crumb {9 / number:.4f}  trace {number * 2654435761 % 2**32:08x}\n" for number in range(5, 60, 5))
    (counter,) = find_counters(keyed_lines(lines_of(rows)))
    assert counter.values[-1] == 55.0


def test_a_short_start_right_behind_an_end_is_a_run_of_its_own() -> None:
    head = "".join(f"reading table of {grain}\n" for grain in ("rye", "wheat", "spelt", "oats", "millet"))
    long_head = head + "".join(f"oven {letter} is warm\n" for letter in "abcdefghijklmnop")
    first = long_head + WORK + TRACEBACK
    begins = len(first.splitlines()) + 1
    places = ((begins - 4, begins - 1),)
    assert runs_of(first + head + "no recipe named 'naan'\n", places) == [1, begins]


def test_a_program_that_says_a_signal_broke_it_off_was_stopped(tmp_path: Path, knowledge: Knowledge) -> None:
    tail = "".join(f"closing oven {number}\n" for number in range(20))
    text = STARTS + WORK + "Session aborted -- Cause: SIGINT\n" + tail + "Execution complete -- Goodbye\n"
    assert outcome_of(facts_of(text, tmp_path, knowledge)).how is How.STOPPED
