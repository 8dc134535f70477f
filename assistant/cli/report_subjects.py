"""`nightshift report user`, `node` and `week`: reports about one subject; nothing but the files asked for is written."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from assistant.cli.context import Json, examples, invocation_of
from assistant.cli.output import now
from assistant.cli.report_request import (
    Anonymise,
    Columns,
    Csv,
    Html,
    Name,
    NoStore,
    Parquet,
    ReportFiles,
    ReportOptions,
    Since,
    Source,
    Types,
    Until,
    Zone,
    incidents_of_store,
    report_source,
    show,
    zone_of,
)

if TYPE_CHECKING:
    from assistant.reports.subjects.weeks import Week

FIRST_YEAR, LAST_YEAR = 1990, 2200
"""Between which a week may be asked for."""

USER_EXAMPLES = examples(
    "nightshift report user --since 30d",
    "nightshift report user ann --html ann.html",
    "nightshift report user ann sacct.txt.gz --json | jq .figures.goodput_parts.rows",
    "nightshift report user ALL sacct.txt.gz --csv users/",
)


def user(
    context: typer.Context,
    user_name: Annotated[str, typer.Argument(metavar="[NAME]", help="Whose jobs; ALL, or nothing: every user's.")] = "ALL",
    source: Source = "",
    columns: Columns = None,
    types: Types = None,
    begin: Since = "",
    until: Until = "",
    zone: Zone = "",
    name: Name = "",
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    anonymise: Anonymise = False,
    no_store: NoStore = False,
    as_json: Json = False,
) -> None:
    """Report a user's jobs: GPU hours, ends, queueing, failures, what was lost.

    Final states by count and by GPU time, queueing beside that of all others, reasons of failures from the store's incidents, the
    waterfall of GPU hours, and the largest jobs. Without a name all users stand beside one another, and sum to the cluster.
    """
    from assistant.reports.subjects.users import read_user, user_report

    invocation = invocation_of(context)
    how = report_source(invocation, ReportOptions(source, columns, types, begin, until, zone, name, anonymise))
    facts = incidents_of_store(invocation, without=no_store)
    read = read_user(how.request, user_name, facts, slices=how.slices, progress=how.progress)
    title = "All users" if read.user is None else f"The work of {read.name}" if anonymise else f"The work of user {read.name}"
    usage_report = user_report(read, how.frame(title, read.form, read.left_out))
    show(invocation, usage_report, ReportFiles(html, csv, parquet), as_json=as_json)


NODE_EXAMPLES = examples(
    "nightshift report node gpu007 --since 90d",
    "nightshift report node gpu007 sacct.txt.gz --html gpu007.html",
    "nightshift report node gpu007 --json | jq .figures.expected.rows",
)


def node(
    context: typer.Context,
    node_name: Annotated[str, typer.Argument(metavar="NODE", help="Name of a node.")],
    source: Source = "",
    columns: Columns = None,
    types: Types = None,
    begin: Since = "",
    until: Until = "",
    zone: Zone = "",
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    anonymise: Anonymise = False,
    no_store: NoStore = False,
    as_json: Json = False,
) -> None:
    """Report a node: what ran there, its failures beside the fleet's, cordons.

    Jobs on it and how they ended, the share that failures broke off beside that of all other nodes, failures beside what its work
    would bring on any node, the verdict on lemons, incidents, and for how long Nightshift had it out of service.
    """
    from assistant.reports.subjects.nodes import node_report, read_node

    invocation = invocation_of(context)
    how = report_source(invocation, ReportOptions(source, columns, types, begin, until, zone, "", anonymise))
    facts = incidents_of_store(invocation, without=no_store)
    cordons = None
    if facts is not None:
        from assistant.reports.subjects.cordons import read_cordons

        cordons = read_cordons(invocation.store, node_name)
    read = read_node(how.request, node_name, facts, cordons, slices=how.slices, progress=how.progress)
    request = how.request
    first_s = request.period.since.timestamp() if request.period.since is not None else float("-inf")
    last_s = min(request.now, request.period.until or request.now).timestamp()
    title = f"The life of {read.name}" if anonymise else f"The life of node {read.name}"
    usage_report = node_report(read, how.frame(title, read.form, read.left_out), first_s=first_s, last_s=last_s)
    show(invocation, usage_report, ReportFiles(html, csv, parquet), as_json=as_json)


WEEK_EXAMPLES = examples(
    "nightshift report week",
    "nightshift report week --of 2026-06-03 --zone Europe/Berlin --html week.html",
    "nightshift report week sacct.txt.gz --json | jq -r .remarks[].text",
)


def week(
    context: typer.Context,
    source: Source = "",
    day: Annotated[
        str, typer.Option("--of", metavar="DAY", help="A day of the week: 2026-06-03. Default: the last whole week.")
    ] = "",
    columns: Columns = None,
    types: Types = None,
    zone: Zone = "",
    name: Name = "",
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    anonymise: Anonymise = False,
    no_store: NoStore = False,
    as_json: Json = False,
) -> None:
    """Report a week, and in words what changed against the week before.

    Weeks are from Monday by the clock of --zone; a job belongs to the week in which it ended. Without --of it is the last week that
    is over, of a file the last one in which a job ended. What an interval does not set apart is not called a change.
    """
    from dataclasses import replace

    from assistant.reports.reliability.reading import read_failures
    from assistant.reports.subjects.weeks import week_of, week_report

    invocation = invocation_of(context)
    place = zone_of(zone)
    week_asked = _week(day, place, invocation_now=now(), of_file=bool(source))
    options = ReportOptions(source, columns, types, "", "", zone, name, anonymise)
    if week_asked is not None:
        options = replace(options, begin=week_asked.former.begin.isoformat(), until=week_asked.end.isoformat())
    how = report_source(invocation, options)
    facts = incidents_of_store(invocation, without=no_store)
    read = read_failures(how.request, facts, slices=how.slices, progress=how.progress)
    if week_asked is None:
        ends = read.runs.jobs.end_s
        week_asked = week_of(datetime.fromtimestamp(float(ends.max()), UTC) if len(ends) else how.request.now, place)
    frame = how.frame(f"The week {week_asked.name}", read.form, read.left_out)
    show(invocation, week_report(read, frame, week_asked), ReportFiles(html, csv, parquet), as_json=as_json)


def _week(day: str, zone: str, *, invocation_now: datetime, of_file: bool) -> Week | None:
    """Return the week that was asked for; None where it is the last one of a file.

    Raises:
        UsageError: The day is none.
    """
    from assistant.errors import UsageError
    from assistant.reports.subjects.weeks import week_of

    if not day:
        return None if of_file else week_of(invocation_now, zone).former
    try:
        moment = datetime.combine(date.fromisoformat(day), time(12), ZoneInfo(zone))
        if not FIRST_YEAR <= moment.year <= LAST_YEAR:
            raise ValueError(day)
    except ValueError as error:
        raise UsageError(f"--of {day[:40]!r}: wanted a day from {FIRST_YEAR} to {LAST_YEAR} such as 2026-06-03") from error
    return week_of(moment, zone)
