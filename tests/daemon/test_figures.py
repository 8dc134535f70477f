"""What a pass leaves in the store, the counts that survive a restart, and Prometheus: names, file, server, alerts, dashboard."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from assistant.daemon.metrics import FAMILIES, MetricsServer, Sort, WatchStanding, write_textfile
from assistant.daemon.pass_reports import PassRecorder, catch_up
from assistant.ports import JumpingClock
from assistant.records import EventKind, IncidentState, Verdict
from assistant.store import Count, Store
from tests.daemon.night import NOON, Night, passed

PACKAGING = Path(__file__).parents[2] / "packaging"
REASONS = frozenset({"ecc_error", "nvlink_error"})
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=str(PACKAGING.parent / ".tools" / "usr" / "bin"))
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="there is no promtool here: make deps-tools")


@pytest.fixture
def night(store: Store, clock: JumpingClock) -> Night:
    """Three incidents: recovered, escalated, open; one cordon that holds, one that was lifted, one that failed, one that waits."""
    made = Night(store, clock)
    recovered, escalated, open_one = (
        made.fails(job, reason=reason) for job, reason in zip("123", ("ecc_error",) * 2 + ("odd",), strict=True)
    )
    made.cordons(recovered)
    made.cordons(recovered, "node007")
    made.uncordons("node007")
    made.cordons(escalated, "node008", ok=False)
    made.asks(open_one)
    clock.sleep(600)
    made.ends(recovered, IncidentState.RECOVERED)
    made.ends(escalated, IncidentState.ESCALATED)
    return made


def standing(stopped_by: str | None = None) -> WatchStanding:
    return WatchStanding("1.2", "propose", stopped_by, ("ops",), "ab12")


def kept(store: Store, stopped_by: list[str | None] | None = None) -> PassRecorder:
    switch = stopped_by if stopped_by is not None else [None]
    return PassRecorder(store, "watch@login1:1.2", lambda: REASONS, lambda: switch[0])


def samples(metrics: MetricsServer) -> dict[str, float]:
    """Name and labels, as in the text, to value."""
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        one.name + ("{" + ",".join(f"{k}={v}" for k, v in sorted(one.labels.items())) + "}" if one.labels else ""): one.value
        for family in families
        for one in family.samples
    }


def test_a_pass_is_kept_for_status(store: Store, clock: JumpingClock) -> None:
    beat = kept(store)
    beat.report(passed(clock, unfinished=2, in_flight=1))
    clock.sleep(30)
    beat.report(passed(clock, trouble=("squeue did not answer",)))
    (found,) = store.watches()
    assert (found.began, found.whole_at, found.at) == (NOON, NOON, NOON + timedelta(seconds=30))
    assert found.trouble == ("squeue did not answer",)
    assert found.leads
    assert store.verify() is None


def test_a_watch_that_stands_by_says_so_also_behind_the_fence(store: Store, clock: JumpingClock) -> None:
    led = store.lead("watch@login1:1.2", 30)
    assert led is not None
    store.fence_off(led)
    clock.sleep(31)
    with Store(store.path, clock) as other:
        assert other.lead("watch@login2:1.2", 30) is not None
    beat = kept(store)
    beat.report(passed(clock, leads=False))
    assert [one.leads for one in store.watches()] == [False]
    clock.sleep(5)
    beat.report(passed(clock, leads=False))
    assert store.watches()[0].at == clock.now() - timedelta(seconds=5), "it need not write each time"


def test_a_store_that_cannot_be_written_stops_no_pass(store: Store, clock: JumpingClock, caplog: pytest.LogCaptureFixture) -> None:
    led = store.lead("a", 30)
    assert led is not None
    store.fence_off(led)
    clock.sleep(31)
    with Store(store.path, clock) as other:
        other.lead("b", 30)
    kept(store).report(passed(clock))
    assert "was not written down" in caplog.text


def test_blindness_is_noted_once_it_lasts_and_once_it_ends(store: Store, clock: JumpingClock) -> None:
    beat = kept(store)
    beat.report(passed(clock))
    for _ in range(30):
        clock.sleep(30)
        beat.report(passed(clock, trouble=("squeue did not answer",)))
    beat.report(passed(clock))
    beat.report(passed(clock))
    found = [(row.outcome, row.at - NOON, row.why) for row in store.audit() if row.what == "watch.blind"]
    assert [(outcome, after) for outcome, after, _ in found] == [("on", timedelta(minutes=10)), ("off", timedelta(minutes=15))]
    assert found[0][2] == "no pass saw everything since 2026-03-10T12:00:00Z: squeue did not answer"


def test_a_restart_forgets_no_blindness(store: Store, clock: JumpingClock) -> None:
    blind = {"trouble": ("squeue did not answer",)}
    kept(store).report(passed(clock, **blind))
    store.set_flag("blind", True, why="", by="the one before")
    kept(store).report(passed(clock))
    assert [row.outcome for row in store.audit() if row.what == "watch.blind"] == ["on", "off"]


def test_the_kill_switch_is_noted_when_it_is_set_and_when_it_is_gone(store: Store, clock: JumpingClock) -> None:
    switch: list[str | None] = [None]
    beat = kept(store, switch)
    for now in (None, "/etc/stop", "/etc/stop", None):
        switch[0] = now
        beat.report(passed(clock))
    found = [(row.outcome, row.why) for row in store.audit() if row.what == "watch.kill_switch"]
    assert found == [
        ("on", "/etc/stop is set: nothing is changed until it is removed"),
        ("off", "it was removed: changes are made again"),
    ]


def test_counts_are_those_of_the_audit(store: Store, night: Night) -> None:
    store.answer(1, Verdict.DENY, "cli:ada")
    catch_up(store, REASONS)
    found = {(one.name, *dict(one.labels).values()): value for one, value in store.counts().items() if "_bucket" not in one.name}
    assert found == {
        ("incidents_opened", str(EventKind.JOB_ENDED)): 3,
        ("incidents", "rule", "ecc_error"): 2,
        ("incidents", "rule", "other"): 1,
        ("incidents_ended", "ecc_error", "recovered"): 1,
        ("incidents_ended", "ecc_error", "escalated"): 1,
        ("recovery_seconds_sum",): 600,
        ("actions", "cordon", "done"): 2,
        ("actions", "cordon", "failed"): 1,
        ("actions", "cordon", "asked"): 1,
        ("actions", "cordon", "denied"): 1,
        ("actions", "uncordon", "done"): 1,
        ("approvals", "deny"): 1,
    }


def test_nothing_is_counted_twice_however_often_it_is_looked(store: Store, night: Night, clock: JumpingClock) -> None:
    catch_up(store, REASONS)
    before = store.counts()
    catch_up(store, REASONS)
    with Store(store.path, clock) as again:
        catch_up(again, REASONS)
    assert store.counts() == before


def test_a_later_diagnosis_of_the_same_incident_is_no_new_incident(store: Store, clock: JumpingClock) -> None:
    night = Night(store, clock)
    incident = night.fails("1")
    catch_up(store, REASONS)
    diagnosis = store.diagnosis(incident)
    assert diagnosis is not None
    store.add_diagnosis(incident, diagnosis)
    catch_up(store, REASONS)
    assert store.counts()[Count("incidents", (("by", "rule"), ("reason", "ecc_error")))] == 1


def test_the_figures_of_a_leader(store: Store, night: Night, clock: JumpingClock) -> None:
    kept(store).report(passed(clock, seconds=0.3))
    metrics = MetricsServer(store, lambda: standing("/etc/stop"))
    metrics.report(passed(clock, in_flight=2, trouble=("x",)))
    found = samples(metrics)
    expected = {
        "nightshift_build_info{version=1.2}": 1,
        "nightshift_policy_info{digest=ab12,mode=propose}": 1,
        "nightshift_leader": 1,
        "nightshift_kill_switch": 1,
        "nightshift_passes_total{result=whole}": 1,
        "nightshift_passes_total{result=degraded}": 0,
        "nightshift_pass_seconds_bucket{le=0.25}": None,
        "nightshift_pass_seconds_bucket{le=0.5}": 1,
        "nightshift_pass_seconds_bucket{le=+Inf}": 1,
        "nightshift_pass_seconds_sum": 0.3,
        "nightshift_pass_troubles": 1,
        "nightshift_incidents_in_flight": 2,
        "nightshift_incidents_open{state=open}": 1,
        "nightshift_incidents_open{state=waiting}": 0,
        "nightshift_approvals_waiting": 1,
        "nightshift_nodes_cordoned": 1,
        "nightshift_last_whole_pass_timestamp_seconds": clock.now().timestamp(),
        "nightshift_recovery_seconds_count": 1,
        "nightshift_actions_total{kind=cordon,outcome=done}": 2,
        "nightshift_notices_behind{sink=ops}": 0,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_a_watch_that_stands_by_shows_only_how_it_stands_itself(store: Store, night: Night, clock: JumpingClock) -> None:
    kept(store).report(passed(clock))
    metrics = MetricsServer(store, standing)
    metrics.report(passed(clock, leads=False))
    found = samples(metrics)
    assert found["nightshift_leader"] == 0
    assert found["nightshift_last_whole_pass_timestamp_seconds"] == clock.now().timestamp()
    assert not [name for name in found if name.startswith(("nightshift_incidents", "nightshift_actions", "nightshift_passes"))]


def test_figures_stay_when_the_store_does_not_answer(
    store: Store, clock: JumpingClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = MetricsServer(store, standing, tmp_path / "no" / "folder" / "n.prom")
    metrics.report(passed(clock))
    assert "metrics stay as they were" in caplog.text
    assert samples(metrics)["nightshift_leader"] == 1


def test_the_textfile_is_replaced_whole_and_readable_by_others(store: Store, clock: JumpingClock, tmp_path: Path) -> None:
    path = tmp_path / "nightshift.prom"
    metrics = MetricsServer(store, standing, path)
    metrics.report(passed(clock))
    assert "nightshift_leader 1.0" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    write_textfile(path, b"new\n")
    assert path.read_text() == "new\n"
    assert [one.name for one in tmp_path.iterdir() if "prom" in one.name] == ["nightshift.prom"]


def test_metrics_are_served_on_this_host(store: Store, clock: JumpingClock) -> None:
    metrics = MetricsServer(store, standing, listen="127.0.0.1:0")
    try:
        metrics.report(passed(clock))
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=5) as reply:
            text = reply.read().decode()
    finally:
        metrics.close()
    assert "nightshift_leader 1.0" in text
    assert "process_resident_memory_bytes" in text


def test_an_address_in_use_stops_no_watch(store: Store, clock: JumpingClock, caplog: pytest.LogCaptureFixture) -> None:
    first = MetricsServer(store, standing, listen="127.0.0.1:0")
    try:
        second = MetricsServer(store, standing, listen=f"127.0.0.1:{first.port}")
        second.report(passed(clock))
        second.close()
    finally:
        first.close()
    assert "nobody can be served" in caplog.text


def test_labels_have_few_values() -> None:
    free = {"job", "node", "user", "incident", "host"}
    assert [family.name for family in FAMILIES if free & set(family.labels)] == []


def test_names_follow_the_conventions() -> None:
    for family in FAMILIES:
        assert re.fullmatch(r"[a-z][a-z_]*[a-z]", family.name)
        assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), "these ends are Prometheus' own"
        assert family.help.endswith(".")
        if "seconds" in family.name or "bytes" in family.name:
            assert family.name.endswith(("_seconds", "_bytes"))


def _known() -> set[str]:
    shown = {family.exported_name for family in FAMILIES}
    shown |= {
        f"{family.exported_name}_{end}"
        for family in FAMILIES
        if family.sort is Sort.HISTOGRAM
        for end in ("bucket", "sum", "count")
    }
    return shown


def _asked_for(expressions: Iterator[str]) -> set[str]:
    return {name for text in expressions for name in re.findall(r"\bnightshift_\w+", text)}


def test_every_figure_in_the_dashboard_exists_and_every_figure_is_in_it() -> None:
    board = json.loads((PACKAGING / "grafana" / "nightshift.json").read_text())
    asked = _asked_for(target["expr"] for panel in board["panels"] for target in panel.get("targets", []))
    asked |= _asked_for(iter([json.dumps(board["templating"]), json.dumps(board["annotations"])]))
    assert asked - _known() == set()
    elsewhere = {"nightshift_last_pass_timestamp_seconds", "nightshift_policy_info"}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked} | elsewhere >= {
        family.exported_name for family in FAMILIES
    }
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_every_figure_in_the_alerts_exists() -> None:
    text = (PACKAGING / "prometheus" / "nightshift.rules.yml").read_text()
    asked = _asked_for(iter(re.findall(r"expr: (?:>-\n)?((?:.+\n)(?: {10,}.+\n)*)", text)))
    assert len(asked) > 8
    assert asked - _known() == set()


def test_every_label_asked_for_exists() -> None:
    labels = {family.exported_name: {*family.labels, "cluster", "instance", "le"} for family in FAMILIES}
    text = (PACKAGING / "prometheus" / "nightshift.rules.yml").read_text() + (PACKAGING / "grafana" / "nightshift.json").read_text()
    for name, selector in re.findall(r"\b(nightshift_\w+)\{([^}]*)\}", text.replace('\\"', '"')):
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert set(re.findall(r"(\w+)=~?\"", selector)) <= labels[family], (name, selector)


@needs_promtool
def test_promtool_takes_the_rules_and_they_alarm_when_they_should(tmp_path: Path) -> None:
    rules = PACKAGING / "prometheus" / "nightshift.rules.yml"
    assert PROMTOOL is not None
    subprocess.run([PROMTOOL, "check", "rules", rules], check=True, capture_output=True)
    for path in (rules, Path(__file__).parents[1] / "cases" / "prometheus" / "rules.test.yml"):
        shutil.copy(path, tmp_path)
    done = subprocess.run([PROMTOOL, "test", "rules", tmp_path / "rules.test.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_takes_the_figures(store: Store, night: Night, clock: JumpingClock) -> None:
    kept(store).report(passed(clock))
    metrics = MetricsServer(store, standing)
    metrics.report(passed(clock))
    assert PROMTOOL is not None
    text = generate_latest(metrics.registry)
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
