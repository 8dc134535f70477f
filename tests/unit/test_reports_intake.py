"""Each row of a source is counted or stands in the table of what was left out; nothing is dropped in silence."""

from __future__ import annotations

import gzip
import io
import random
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import ContentError, InputError
from assistant.reports.intake import FATES, FLAWS, TimeRange
from assistant.reports.reading import ReadRequest, read_source
from assistant.reports.workload_types import TypeRule, TypeRules, type_rules
from tests.unit.reports_here import HEADER, NOW, column_of, read_text

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "reports" / "rows.toml").read_text(encoding="utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_each_row_is_counted_or_named(case: dict[str, Any], tmp_path: Path) -> None:
    read = read_text(case["text"].lstrip("\n"), tmp_path, zone=case.get("zone", "UTC"))
    kinds = column_of(read.left_out, "rows")
    assert {kind: count for kind, count in kinds.items() if count} == {**case.get("fates", {}), **case.get("flaws", {})}
    assert read.jobs.count == case["jobs"]
    assert float(np.nansum(read.jobs.gpu_s)) / 3600 == pytest.approx(case.get("gpu_h", 0.0))


def test_the_cases_have_every_kind() -> None:
    named = {kind for case in CASES for kind in (*case.get("fates", ()), *case.get("flaws", ()))}
    assert named == {*FATES, *FLAWS} - {"outside the period"}


ROW = "{id}|eval|ann|x|p|COMPLETED|0:0|{submit}|{start}|{end}|1|16|gres/gpu=2"


def rows(count: int) -> list[str]:
    return [ROW.format(id=n, submit=1690000000 + n, start=1690000010 + n, end=1690003610 + 60 * n) for n in range(1, count + 1)]


def test_a_gzip_and_standard_input_are_read_as_the_plain_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join([HEADER, *rows(50)]).encode()
    plain = read_text(text, tmp_path)
    packed = read_text(gzip.compress(text[:1000]) + gzip.compress(text[1000:]), tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(text))))
    piped = read_source(ReadRequest("-", type_rules(None), "UTC", NOW), folder=tmp_path)
    for other in (packed, piped):
        assert other.jobs.end_s.tolist() == plain.jobs.end_s.tolist()
        assert other.left_out.rows == plain.left_out.rows


def test_bytes_that_are_no_text_cost_a_sign_and_no_row(tmp_path: Path) -> None:
    text = "\n".join([HEADER, *rows(3)]).encode().replace(b"|ann|", b"|a\xffn\x00n|", 1).replace(b"\n", b"\r\n")
    read = read_text(text, tmp_path)
    assert read.jobs.count == 3
    assert set(read.jobs.by["user"].names) == {"ann", "a\ufffdn\ufffdn"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"hello\n", "neither a header of sacct"),
        (b'{"jobs": []}\n', "JSON"),
        (b"JobID|User|Partition\n1|a|b\n", "has no column state, start, end"),
        (b"a,b,c,d\n1,2,3,4\n", "--columns"),
        (b"BZh91AY&SY", "bzip2"),
        (gzip.compress(b"JobID|State|Start|End\n" * 100, mtime=0)[:-20], "damaged or cut short"),
    ],
)
def test_what_is_no_accounting_is_refused_with_what_to_do(content: bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        read_text(content, tmp_path)


@pytest.mark.parametrize(
    ("columns", "sure"),
    [("JobID|State|Start|End|AllocTRES|JobName", False), ("JobID|JobName|State|Start|End|AllocTRES|", True)],
)
def test_names_in_the_last_column_are_said_to_make_rows_unsure(columns: str, sure: bool, tmp_path: Path) -> None:
    form = read_text(f"{columns}\n", tmp_path).form
    assert (form == "sacct --parsable2") == sure
    assert sure or "jobname is the last column" in form


FIELD = st.sampled_from(
    ["", "x", "1", "0", "-5", "1e400", "NaN", "inf", "Unknown", "1690000000", "1690009999", "2023-07-01T12:00:00", "'; --"]
)


@given(st.lists(st.tuples(*[FIELD] * 7), max_size=40))
@settings(max_examples=25, deadline=None)
def test_every_row_of_any_source_is_counted_or_left_out_once(fields: list[tuple[str, ...]]) -> None:
    text = "\n".join(["JobID|User|Submit|Start|End|NNodes|AllocTRES|State", *("|".join((*row, "COMPLETED")) for row in fields)])
    with tempfile.TemporaryDirectory() as name:
        read = read_text(text, Path(name))
    kinds = column_of(read.left_out, "rows")
    assert sum(int(str(kinds[fate])) for fate in FATES) + read.jobs.count == len(fields)
    assert bool(np.isfinite(read.jobs.end_s).all())
    assert bool((read.jobs.run_s >= 0).all())


def test_a_path_with_signs_of_a_pattern_is_that_path(tmp_path: Path) -> None:
    odd = tmp_path / "a*b?[c]"
    odd.mkdir()
    (odd / "x.txt").write_text("\n".join([HEADER, *rows(2)]))
    (tmp_path / "axb").mkdir()
    assert read_source(ReadRequest(str(odd / "x.txt"), type_rules(None), "UTC", NOW)).jobs.count == 2


def test_the_order_of_the_rows_does_not_matter(tmp_path: Path) -> None:
    listed = rows(200)
    straight = read_text("\n".join([HEADER, *listed]), tmp_path)
    random.Random(3).shuffle(listed)
    shuffled = read_text("\n".join([HEADER, *listed]), tmp_path)
    for key in ("submit_s", "start_s", "end_s", "run_s", "queue_s", "gpus", "gpu_s"):
        assert getattr(straight.jobs, key).tolist() == getattr(shuffled.jobs, key).tolist()
    assert straight.left_out.rows == shuffled.left_out.rows


def test_a_job_belongs_to_the_period_in_which_it_ended_and_to_no_other(tmp_path: Path) -> None:
    text = "\n".join([HEADER, *rows(100)])
    whole = read_text(text, tmp_path)
    cut = datetime.fromtimestamp(1690003610 + 60 * 40, UTC)
    before, after = read_text(text, tmp_path, period=TimeRange(until=cut)), read_text(text, tmp_path, period=TimeRange(since=cut))
    assert (before.jobs.count, after.jobs.count, whole.jobs.count) == (39, 61, 100)
    assert column_of(before.left_out, "rows")["outside the period"] == 61
    assert before.jobs.end_s.tolist() + after.jobs.end_s.tolist() == whole.jobs.end_s.tolist()


def test_rules_of_types_hold_in_their_order_and_the_source_comes_first(tmp_path: Path) -> None:
    rules = TypeRules((TypeRule("big", least_gpus=2, name="^eva"), TypeRule("ann's", user="^ann$"), TypeRule("never", most_h=0.1)))
    text = "\n".join([HEADER, *rows(3), rows(1)[0].replace("eval", "x").replace("1|", "9|", 1)])
    assert set(read_text(text, tmp_path, rules=rules).jobs.by["type"].names) == {"big", "ann's"}
    with pytest.raises(ContentError, match="pattern cannot be used"):
        read_text(text, tmp_path, rules=TypeRules((TypeRule("x", name="("),)))
    trace = CASES[[case["name"] for case in CASES].index("the released form of Seren")]["text"].lstrip("\n")
    assert set(read_text(trace.replace("Other", "Eval", 1), tmp_path).jobs.by["type"].names) == {"evaluation", "other"}


@pytest.mark.parametrize(
    ("name", "gpus", "kind"),
    [
        ("llama3_eval_mmlu", 8, "evaluation"),
        ("opencompass-7b", 1, "evaluation"),
        ("evaluate", 1, "evaluation"),
        ("medieval_maps", 1, "other"),
        ("sft-v3", 16, "SFT"),
        ("finetune_qwen", 8, "SFT"),
        ("bash", 1, "debug"),
        ("my_test_run", 1, "debug"),
        ("contest", 1, "other"),
        ("pretrain_104b", 1024, "pretraining"),
        ("gpt-13b", 64, "pretraining"),
        ("gpt-13b", 1, "other"),
    ],
)
def test_shipped_rules_tell_usual_names(name: str, gpus: int, kind: str, tmp_path: Path) -> None:
    row = f"1|{name}|ann|x|p|COMPLETED|0:0|1690000000|1690000010|1690100010|1|16|cpu=16,gres/gpu={gpus}"
    assert read_text(f"{HEADER}\n{row}\n", tmp_path).jobs.by["type"].names == (kind,)


MAP = """
seconds_from = 2023-01-01
zone = "Europe/Berlin"
[columns]
id = "name"
gpus = { column = "n", times = "milli", scale = 0.001 }
start = "began"
end = "ended"
state = "phase"
[states]
Succeeded = "completed"
"""


def test_a_map_names_columns_products_states_and_the_beginning_of_time(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(MAP)
    text = "name,n,milli,began,ended,phase\na,1,500,0,7200,Succeeded\nb,2,1000,3600,7200,FAILED\n"
    read = read_text(text, tmp_path, columns=tmp_path / "map.toml")
    assert read.jobs.start_s.tolist() == [1672531200.0, 1672534800.0]
    assert read.jobs.gpus.tolist() == [0.5, 2.0]
    assert set(read.jobs.by["state"].names) == {"completed", "failed"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("id =", "idea ="), "columns.idea: unknown"),
        (('end = "ended"\n', ""), "does not say where end stands"),
        (('"completed"', '"fine"'), "is no state"),
        (("2023-01-01", '"soon"'), "wanted a date"),
        (("[states]", "[stats]"), "stats: unknown key"),
        (("scale = 0.001", 'scale = "x"'), "columns.gpus"),
    ],
)
def test_a_wrong_map_is_named(change: tuple[str, str], words: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(MAP.replace(*change))
    with pytest.raises(ContentError, match=words):
        read_text("name,n,milli,began,ended,phase\n", tmp_path, columns=tmp_path / "map.toml")


def test_a_map_of_columns_that_a_file_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(MAP)
    with pytest.raises(InputError, match="has no column milli"):
        read_text("name,n,began,ended,phase\n", tmp_path, columns=tmp_path / "map.toml")


@pytest.mark.parametrize("zone", ["Mars/Olympus", "x'; DROP TABLE raw; --", "../../etc/passwd"])
def test_a_zone_of_a_map_that_is_none_is_named(zone: str, tmp_path: Path) -> None:
    (tmp_path / "map.toml").write_text(MAP.replace("Europe/Berlin", zone))
    with pytest.raises(InputError, match="is no zone"):
        read_text("name,n,milli,began,ended,phase\n", tmp_path, columns=tmp_path / "map.toml")


def test_a_line_that_never_ends_is_refused_and_no_bug(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_text(f"{HEADER}\n{'x' * (9 << 20)}\n", tmp_path)
