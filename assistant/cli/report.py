"""`nightshift report`: where the GPU hours went, from accounting alone. Changes nothing but the files that it is asked to write."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Invocation, Json, app, examples, invocation_of
from assistant.cli.output import now, print_json, since
from assistant.errors import InputError, UsageError

if TYPE_CHECKING:
    from assistant.reports.figures import UsageReport
    from assistant.reports.intake import TimeRange
    from assistant.reports.reading import ReadJobs, ReadRequest

report_app = app(help="Report where the GPU hours went, from accounting alone.", no_args_is_help=True)

DEFAULT_LENGTH = timedelta(days=30)
SLICE_TIMEOUT_S = 300.0
"""For a day of a large cluster."""


@report_app.callback()
def report() -> None:
    """Report where the GPU hours went, from accounting alone."""


@report_app.command(
    "cluster",
    epilog=examples(
        "nightshift report cluster --since 30d --html june.html",
        "SLURM_TIME_FORMAT=%s sacct --parsable2 --duplicates --allusers --allocations --starttime 2026-06-01 --format="
        "JobID,JobName,User,Account,Partition,State,ExitCode,Submit,Start,End,NNodes,NCPUS,AllocTRES > sacct.txt",
        "nightshift report cluster sacct.txt.gz --html june.html --csv june/",
        "nightshift report cluster trace_seren.csv --zone Asia/Shanghai --json | jq .headline",
        "zcat trace.csv.gz | nightshift report cluster - --columns map.toml --anonymise",
    ),
)
def cluster(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Output of sacct --parsable2, or a trace in CSV; plain or gzip, - for stdin.")
    ] = "",
    columns: Annotated[
        Path | None, typer.Option("--columns", metavar="MAP", help="TOML that says which column of a CSV holds what.")
    ] = None,
    types: Annotated[
        Path | None, typer.Option("--types", metavar="RULES", help="TOML with rules for kinds of work, instead of the site's.")
    ] = None,
    begin: Annotated[str, typer.Option("--since", metavar="WHEN", help="Jobs that ended from then on: 30d, 2026-10-01.")] = "",
    until: Annotated[str, typer.Option("--until", metavar="WHEN", help="Jobs that ended before then.")] = "",
    zone: Annotated[
        str, typer.Option("--zone", metavar="NAME", help="Zone of hours and days, and of times without one: Europe/Berlin.")
    ] = "",
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="What the cluster is called in the title.")] = "",
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one page with plots, for any browser.")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FOLDER", help="Write a CSV file for each figure.")] = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Show no name of a user, account, partition, job, file or cluster.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Report what a cluster's work was, beside five published clusters.

    Jobs, GPU hours, kinds of work, final states by count and by GPU time, sizes, durations, queueing, users and hours, each with n
    and its interval, and in words what is unusual. Without FILE the accounting of the Slurm here is asked, day by day; days that
    are over are kept, so that the next report asks for new ones only. What was left out, and why, is part of every report.
    """
    from assistant.reports.intake import TimeRange
    from assistant.reports.reading import ReadRequest, read_source
    from assistant.reports.workload_types import type_rules

    invocation = invocation_of(context)
    place = _zone(zone)
    moment = now()
    first = _moment("--since", begin, moment)
    if not source and first is None:
        first = moment - DEFAULT_LENGTH
    period = TimeRange(first, _moment("--until", until, moment))
    request = ReadRequest(source or "this cluster", type_rules(invocation.site, types), place, moment, period, columns, anonymise)
    slices = None if source else _slices(invocation, period, moment)
    read = read_source(request, slices=slices, progress=lambda text: _progress(invocation, text))
    usage_report = _cluster_report(invocation, request, read, name)
    if as_json:
        from assistant.reports.exports import as_object

        print_json(as_object(usage_report))
    elif html is None and csv is None:
        from assistant.cli.report_text import show_report

        show_report(usage_report)
    _write(invocation, usage_report, html, csv)


def _cluster_report(invocation: Invocation, request: ReadRequest, read: ReadJobs, name: str) -> UsageReport:
    from assistant.reports.cluster import ReportFrame, cluster_report
    from assistant.reports.references import reference_clusters

    title = "Where the GPU hours went" + (f": {name}" if name and not request.anonymous else "")
    facts = [("source", read.form if request.anonymous else f"{request.source} ({read.form})")]
    limits = [
        f"{word} {at.astimezone():%Y-%m-%d %H:%M}"
        for word, at in (("from", request.period.since), ("until", request.period.until))
        if at
    ]
    if limits:
        facts.append(("ended", " ".join(limits)))
    frame = ReportFrame(title, request.zone, facts, read.left_out)
    return cluster_report(read.jobs, reference_clusters(invocation.site), frame)


def _slices(invocation: Invocation, period: TimeRange, moment: datetime) -> Iterator[str]:
    """Return the accounting of the Slurm here, day by day."""
    from assistant.private_files import close_state_folder
    from assistant.reports.sacct_live import LiveAccounting
    from assistant.schedulers.slurm_run import SlurmCommands

    settings = invocation.settings
    close_state_folder(settings.state_folder, settings.store)
    slurm = settings.slurm
    commands = SlurmCommands(folder=slurm.folder, conf=slurm.conf, timeout_s=max(slurm.timeout_s, SLICE_TIMEOUT_S))
    accounting = LiveAccounting(commands, settings.state_folder / "accounting")
    since = period.since or moment - DEFAULT_LENGTH
    return accounting.slices(since, period.until or moment, moment, lambda text: _progress(invocation, text))


def _progress(invocation: Invocation, text: str) -> None:
    if sys.stderr.isatty():
        invocation.say(f"nightshift: {text}")


def _zone(name: str) -> str:
    """Return the name of a zone that is known; of this machine's where none is given."""
    from zoneinfo import ZoneInfo

    zone_name = name or _own_zone()
    try:
        ZoneInfo(zone_name)
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(f"--zone {zone_name!r}: no such zone; wanted a name such as Europe/Berlin or UTC") from error
    return zone_name


def _own_zone() -> str:
    """Return the zone of this machine by its name, UTC where it has none."""
    import os

    environment_zone = os.environ.get("TZ", "").lstrip(":")
    if environment_zone:
        return environment_zone
    target = os.path.realpath("/etc/localtime")
    _, separator, zone = target.partition("zoneinfo/")
    return zone if separator else "UTC"


def _moment(option: str, text: str, at: datetime) -> datetime | None:
    try:
        return since(text, at) if text else None
    except UsageError as error:
        raise UsageError(str(error).replace("--since", option, 1)) from error


def _write(invocation: Invocation, usage_report: UsageReport, html: Path | None, folder: Path | None) -> None:
    try:
        if html is not None:
            from assistant.reports.page import page

            html.write_text(page(usage_report), encoding="utf-8")
            invocation.say(f"nightshift: wrote {html}")
        if folder is not None:
            from assistant.reports.exports import csv_files

            folder.mkdir(parents=True, exist_ok=True)
            for file, text in csv_files(usage_report):
                (folder / file).write_text(text, encoding="utf-8")
            invocation.say(f"nightshift: wrote {folder}")
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error
