"""Tracebacks are read per rank, with their chains, and those that are no failure are told apart."""

from __future__ import annotations

from assistant.diagnose.readers.streams import Streams
from assistant.diagnose.readers.tracebacks import Episode, EpisodeKind, read_tracebacks
from assistant.logs.lines import Line


def episodes(text: str) -> list[Episode]:
    lines = [Line(number, line) for number, line in enumerate(text.strip("\n").split("\n"), 1)]
    return read_tracebacks(lines, Streams(line.text for line in lines)).ended


def test_ranks_that_interleave_are_read_apart() -> None:
    found = episodes("""
[rank1]: Traceback (most recent call last):
[rank0]: Traceback (most recent call last):
[rank1]:   File "a.py", line 1, in f
[rank0]:   File "b.py", line 1, in g
[rank1]:     x()
[rank0]: KeyError: 'b'
[rank1]: ValueError: a
""")
    assert [(e.rank, e.raised[0].short, e.raised[0].line) for e in found] == [(1, "ValueError", 7), (0, "KeyError", 6)]


def test_ranks_without_marks_are_closed_in_order() -> None:
    found = episodes("""
Traceback (most recent call last):
Traceback (most recent call last):
  File "a.py", line 1, in f
  File "b.py", line 1, in g
KeyError: 'b'
ValueError: a
""")
    assert sorted(e.raised[0].short for e in found) == ["KeyError"] or len(found) == 2


def test_a_chain_is_one_episode_and_knows_what_caused_what() -> None:
    (found,) = episodes("""
Traceback (most recent call last):
  File "a.py", line 1, in f
OSError: [Errno 28] No space left on device

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "b.py", line 2, in g
RuntimeError: cannot save
""")
    assert [(r.short, r.cause) for r in found.raised] == [("OSError", False), ("RuntimeError", True)]


def test_an_exception_of_a_data_loader_worker_is_part_of_its_episode() -> None:
    (found,) = episodes("""
7: Traceback (most recent call last):
7:   File "a.py", line 1, in f
7: IndexError: Caught IndexError in DataLoader worker process 0.
7: Original Traceback (most recent call last):
7:   File "b.py", line 1, in g
7: IndexError: list index out of range
""")
    assert [r.line for r in found.raised] == [3, 6]
    assert found.task == 7


def test_what_is_printed_while_objects_are_torn_down_is_marked() -> None:
    found = episodes("""
Exception ignored in: <function Run.__del__ at 0x7f>
Traceback (most recent call last):
  File "a.py", line 1, in __del__
AttributeError: 'NoneType' object has no attribute 'info'
Error in atexit._run_exitfuncs:
Traceback (most recent call last):
  File "a.py", line 1, in _shutdown
FileNotFoundError: [Errno 2] No such file or directory: 'x'
Exception in thread Thread-3 (_flush_loop):
Traceback (most recent call last):
  File "a.py", line 1, in run
BrokenPipeError: [Errno 32] Broken pipe
Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
""")
    assert [e.kind for e in found] == [EpisodeKind.IGNORED, EpisodeKind.ATEXIT, EpisodeKind.THREAD, EpisodeKind.LAUNCHER]


def test_the_next_log_line_is_no_part_of_the_message() -> None:
    (found,) = episodes("""
Traceback (most recent call last):
  File "a.py", line 1, in f
RuntimeError: Error(s) in loading state_dict for Model:
	size mismatch for head.weight
ERROR: could not push metrics: Max retries exceeded
""")
    assert [number for number, _ in found.raised[0].more] == [4]


def test_hosts_before_a_colon_are_learned_and_exception_classes_are_not() -> None:
    streams = Streams(
        ["node07: hello", "node07: more", "node07: Traceback (most recent call last):", "S3Error: x", "S3Error: y", "S3Error: z"]
    )
    assert streams.hosts == {"node07"}
    assert streams.body("[1,9]<stderr>:2024-01-01 10:00:00,1 boom").rank == 9
