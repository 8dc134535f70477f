"""The tables of device codes are complete, say where each row comes from, and mean for a job what the vendor says."""

from __future__ import annotations

import pytest

from assistant.content.devices import CodeKind, DeviceCode, Sxid, ascend_codes, sxids, xids
from assistant.content.reasons import Role, reasons
from assistant.diagnose.readers.kernel import event_of, meaning_of
from assistant.records import Action

XIDS = sorted(xids().values(), key=lambda row: int(row.code))
ASCEND = list(ascend_codes().values())
ROWS = [*XIDS, *ASCEND]
SXIDS = list(sxids().values())
HARDWARE = (46, 48, 54, 61, 62, 64, 74, 79, 94, 95, 109, 110, 119, 120, 121, 136, 140, 143, *range(144, 151))
NO_HARDWARE = (8, 11, 13, 25, 31, 32, 39, 43, 45, 63, 68, 69, 92, 106, 137, 154, 162)


def test_every_code_of_the_catalogue_and_of_the_driver_is_there_once() -> None:
    assert [int(row.code) for row in XIDS] == list(range(1, 177))


def test_every_code_of_an_nvswitch_is_there() -> None:
    assert len(SXIDS) == 400
    assert {int(row.code) // 1000 for row in SXIDS} == set(range(10, 31))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_a_row_names_a_known_reason_and_its_source(row: DeviceCode) -> None:
    assert row.reason == "cascade" or row.reason in reasons()
    assert row.source
    assert row.meaning
    assert row.mnemonic


@pytest.mark.parametrize("row", XIDS, ids=lambda row: row.code)
def test_a_row_says_what_nvidia_wants_done(row: DeviceCode) -> None:
    assert row.vendor


@pytest.mark.parametrize("row", SXIDS, ids=lambda row: row.code)
def test_a_switch_code_that_may_be_ignored_is_not_fatal(row: Sxid) -> None:
    assert row.fatal == (row.vendor not in ("IGNORE", "no action given"))
    assert row.source


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.code)
def test_kind_and_action_agree(row: DeviceCode) -> None:
    if row.kind in (CodeKind.HARDWARE, CodeKind.UNCLEAR, CodeKind.UNUSED):
        assert row.action in (Action.CORDON_AND_RESTART, Action.RESTART_SAME_NODES)
    if row.reason == "cascade":
        assert row.kind is CodeKind.FOLLOWS
        assert row.action is Action.NONE


@pytest.mark.parametrize("row", XIDS, ids=lambda row: row.code)
def test_a_line_with_the_number_means_what_the_row_says_whatever_its_words(row: DeviceCode) -> None:
    event = event_of(f"[81234.12] NVRM: Xid (PCI:0000:4e:00): {row.code}, pid=1967, name=python, text of the driver")
    meaning = meaning_of(event) if event is not None else None
    assert meaning is not None
    assert (meaning.role is Role.ROOT) == row.root
    assert meaning.blames == (row.kind is CodeKind.HARDWARE)


@pytest.mark.parametrize("code", HARDWARE)
def test_a_hardware_code_blames_its_node(code: int) -> None:
    assert xids()[code].blames_node


@pytest.mark.parametrize("code", NO_HARDWARE)
def test_what_programs_cause_or_what_follows_blames_no_node(code: int) -> None:
    assert not xids()[code].blames_node


@pytest.mark.parametrize("code", [177, 201, 999])
def test_a_number_that_nobody_lists_asks_for_a_test_and_blames_nobody(code: int) -> None:
    event = event_of(f"NVRM: Xid (PCI:0000:4e:00): {code}, pid=1967, name=python")
    meaning = meaning_of(event) if event is not None else None
    assert meaning is not None
    assert (meaning.action, meaning.blames) == (Action.CORDON_AND_RESTART, False)
    assert meaning.weight < 0.6
