"""The table of NVIDIA's XIDs is complete, says where each row comes from, and agrees with the signatures."""

from __future__ import annotations

import re

import pytest

from assistant.content.reasons import Role, Xid, reasons, xids
from assistant.records import Action

CODES = [
    *(13, 31, 32, 39, 40, 41, 43, 45, 46, 48, 61, 62, 63, 64, 69, 70, 71, 72, 74, 75, 76, 77, 79, 85, 92, 94, 95),
    *(109, 110, 119, 120, 121, 122, 123, 124, 125, *range(126, 136), *range(136, 151)),
    *(154, 155, 156, 157, 158, 160, 161, 167, 168, 171, 172),
]
ROWS = sorted(xids().values(), key=lambda row: row.code)


def test_the_table_holds_every_code_that_we_have_facts_about() -> None:
    assert [row.code for row in ROWS] == sorted(CODES)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.code))
def test_a_row_names_a_known_reason_its_provenance_and_what_nvidia_says(row: Xid) -> None:
    assert row.reason == "cascade" or row.reason in reasons()
    assert row.source
    assert row.nvidia
    assert row.meaning


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.code))
def test_a_code_that_follows_another_is_no_root_and_asks_for_nothing(row: Xid) -> None:
    if row.reason == "cascade":
        assert not row.root
        assert row.action is Action.NONE


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.code))
def test_a_kernel_line_with_the_code_is_matched_by_a_signature_of_the_row_s_reason(row: Xid) -> None:
    line = f"[81234.12] NVRM: Xid (PCI:0000:4e:00): {row.code}, pid=1967, name=python, text of the driver"
    owner = "unknown" if row.reason == "cascade" else row.reason
    hits = [entry for entry in reasons()[owner].signature if re.search(entry.pattern, line)]
    assert hits
    strongest = max(hits, key=lambda entry: entry.weight)
    assert (strongest.role is Role.ROOT) == row.root
