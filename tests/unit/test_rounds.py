"""How far a job came in what it counts itself, whatever it calls that."""

from __future__ import annotations

import pytest

from assistant.diagnose.readers.rounds import last_count
from assistant.logs.lines import Line


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["round 5/160 ok", "round 10/160 ok"], "round 10 of 160"),
        (["12:01 shard 3 done", "12:02 shard 4 done"], "shard 4"),
        (["pass 1 of 9", "pass 2 of 9"], "pass 2 of 9"),
        (["wrote part-007 (9 rows)", "wrote part-008 (8 rows)"], "part 8"),
        (["sweep=35 rms=0.2", "sweep=40 rms=0.1"], "sweep 40"),
        (["Station 4/31", "Station 5/31"], "station 5 of 31"),
        ([f"[{n:4}] logloss 0.{900 - n}" for n in range(5, 35, 5)], "count 30"),
        (["round 5 of 9"], None),
        (["line 5 of 9", "line 6 of 9"], None),
        (["rank 0 of 4", "rank 1 of 4", "rank 2 of 4"], None),
        (["epoch 3", "epoch 2"], None),
        (["attempt 1/5 failed", "attempt 2/5 failed"], None),
        (["step 5 error: x", "step 6 error: y"], None),
        (["[1] first", "[2] second"], None),
        (["elapsed 5 s", "elapsed 6 s"], None),
        (
            [f"[I] Trial {n} finished: 0.{n} ({n}/50). Best is trial {b}" for n, b in ((1, 1), (2, 1), (3, 3), (4, 3))],
            "trial 4 of 50",
        ),
        ([f"Trial {n} done ({n + 1} of 40)" for n in range(3)], "trial 3 of 40"),
        ([f"{n}/12 molecules relaxed" for n in (3, 5, 9)], "molecule 9 of 12"),
        ([f"wrote {name} ({n}/7)" for n, name in enumerate(("asia", "europe", "africa"), 2)], "4 of 7"),
        ([f"done {n}/6" for n in (1, 2, 3, 4, 5, 6, 1, 2)], "done 2 of 6"),
        (["scoring:  60%|######    | 48/80 [38s]"], "48 of 80"),
        (["lanes [=====>    ] 11/20"], "11 of 20"),
        (["asked 48/80 [38s]Traceback (most recent call last):"], "48 of 80"),
        (["Downloading: 60%|######    | 48/80 [38s]"], None),
        (["Loading checkpoint shards:  66%|######6   | 2/4"], None),
        (["scoring:   1%|          | 1/80 [1s]"], None),
        (["asked 48/80 questions"], None),  # once is no progress
        ([f"rank {n}/8 has its port" for n in range(8)], None),
        ([f"connected {n}/8 peers" for n in range(8)], None),
        ([f"fetching {n}/8" for n in range(8)], None),
        ([f"on 2026/{n}/30 at 10:{n}" for n in range(1, 9)], None),
        ([f"GPU {n} of 8: 80 GB" for n in range(8)], None),
        ([f"try {n}/5: Connection error, retrying" for n in range(1, 5)], None),
    ],
)
def test_the_last_count_is_that_of_the_word_whose_number_rises(texts: list[str], words: str | None) -> None:
    count = last_count(Line(number, text) for number, text in enumerate(texts, 1))
    assert (str(count) if count is not None else None) == words
