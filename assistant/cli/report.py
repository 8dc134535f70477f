"""`nightshift report`: where the GPU hours went, and why. Changes nothing but the files that it is asked to write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assistant.cli.context import Json, app, examples, invocation_of
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
)
from assistant.cli.report_subjects import NODE_EXAMPLES, USER_EXAMPLES, WEEK_EXAMPLES, node, user, week

report_app = app(help="Report where the GPU hours went, from accounting and incidents.", no_args_is_help=True)


@report_app.callback()
def report() -> None:
    """Report where the GPU hours went, from accounting and incidents."""


@report_app.command(
    "cluster",
    epilog=examples(
        "nightshift report cluster --since 30d --html june.html",
        "SLURM_TIME_FORMAT=%s sacct --parsable2 --duplicates --allusers --allocations --starttime 2026-06-01 --format="
        "JobID,JobName,User,Account,Partition,State,ExitCode,Submit,Start,End,NNodes,NCPUS,AllocTRES,NodeList > sacct.txt",
        "nightshift report cluster sacct.txt.gz --html june.html --csv june/",
        "nightshift report cluster trace_seren.csv --zone Asia/Shanghai --json | jq .headline",
        "zcat trace.csv.gz | nightshift report cluster - --columns map.toml --anonymise",
    ),
)
def cluster(
    context: typer.Context,
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
    as_json: Json = False,
) -> None:
    """Report what a cluster's work was, beside five published clusters.

    Jobs, GPU hours, kinds of work, final states by count and by GPU time, sizes, durations, queueing, users and hours, each with n
    and its interval, and in words what is unusual. Without FILE the accounting of the Slurm here is asked, day by day; days that
    are over are kept, so that the next report asks for new ones only. What was left out, and why, is part of every report.
    """
    from assistant.reports.cluster import cluster_report
    from assistant.reports.reading import read_source
    from assistant.reports.references import reference_clusters

    invocation = invocation_of(context)
    how = report_source(invocation, ReportOptions(source, columns, types, begin, until, zone, name, anonymise))
    read = read_source(how.request, slices=how.slices, progress=how.progress)
    frame = how.frame("Where the GPU hours went", read.form, read.left_out)
    show(
        invocation,
        cluster_report(read.jobs, reference_clusters(invocation.site), frame),
        ReportFiles(html, csv, parquet),
        as_json=as_json,
    )


@report_app.command(
    "failures",
    epilog=examples(
        "nightshift report failures --since 30d --html failures.html",
        "nightshift report failures sacct.txt.gz --csv failures/",
        "nightshift report failures other_cluster.txt --no-store --json | jq .figures.by_reason.rows",
    ),
)
def failures(
    context: typer.Context,
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
    """Report why jobs failed, what it cost, and how fast they came back.

    The paper's Table 3 for this site.

    Failures, GPU hours, demand, time to failure and to restart by reason, node, user and partition, ordered by GPU time. Reasons
    are those of the store's incidents, joined by job and attempt; failures without one are counted as not diagnosed. Without a
    store the final states of the accounting stand in their place.
    """
    from assistant.reports.reliability.failures import failures_report
    from assistant.reports.reliability.reading import read_failures

    invocation = invocation_of(context)
    how = report_source(invocation, ReportOptions(source, columns, types, begin, until, zone, name, anonymise))
    facts = incidents_of_store(invocation, without=no_store)
    read = read_failures(how.request, facts, slices=how.slices, progress=how.progress)
    frame = how.frame("Why jobs failed, and what it cost", read.form, read.left_out)
    show(invocation, failures_report(read, frame, with_names=not anonymise), ReportFiles(html, csv, parquet), as_json=as_json)


@report_app.command(
    "reliability",
    epilog=examples(
        "nightshift report reliability --since 90d --html reliability.html",
        "nightshift report reliability sacct.txt.gz --checkpoint-min 30 --start-min 10",
        "nightshift report reliability sacct.txt.gz --json | jq .figures.lemon_nodes.rows",
    ),
)
def reliability(
    context: typer.Context,
    source: Source = "",
    columns: Columns = None,
    types: Types = None,
    begin: Since = "",
    until: Until = "",
    zone: Zone = "",
    name: Name = "",
    start_min: Annotated[
        float, typer.Option("--start-min", min=0, max=10_000, metavar="MINUTES", help="From a start to the first new step.")
    ] = 5.0,
    checkpoint_min: Annotated[
        float, typer.Option("--checkpoint-min", min=0, max=100_000, metavar="MINUTES", help="Between two checkpoints.")
    ] = 60.0,
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    anonymise: Anonymise = False,
    no_store: NoStore = False,
    as_json: Json = False,
) -> None:
    """Report goodput, the time between failures by job size, and bad nodes.

    Goodput as a waterfall whose parts sum to all allocated GPU hours, with what is not known as a part of its own; time to failure
    and effective training time ratio by size of job with exact intervals, and what the model of Meta's study expects of larger
    jobs; lemon nodes; the share of incidents that needed no person. Where no incident says what a failure cost, it is taken from
    --start-min and --checkpoint-min.
    """
    from assistant.reports.reliability.failure_rates import RestartCost
    from assistant.reports.reliability.reading import read_failures
    from assistant.reports.reliability.reliability import reliability_report

    invocation = invocation_of(context)
    how = report_source(invocation, ReportOptions(source, columns, types, begin, until, zone, name, anonymise))
    facts = incidents_of_store(invocation, without=no_store)
    read = read_failures(how.request, facts, slices=how.slices, progress=how.progress)
    frame = how.frame("How reliably jobs ran", read.form, read.left_out)
    cost = RestartCost(start_min * 60, checkpoint_min * 60)
    usage_report = reliability_report(read, frame, cost, how.request.period)
    show(invocation, usage_report, ReportFiles(html, csv, parquet), as_json=as_json)


@report_app.command(
    "job",
    epilog=examples(
        "nightshift report job 4821",
        "nightshift report job 4821 sacct.txt.gz --html 4821.html",
        "nightshift report job 4821_3 --since 90d --json | jq .figures.attempts.rows",
    ),
)
def job_life(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="ID", help="Id of a job, of any attempt of its run.")],
    source: Source = "",
    columns: Columns = None,
    begin: Since = "",
    until: Until = "",
    zone: Zone = "",
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    no_store: NoStore = False,
    as_json: Json = False,
) -> None:
    """Report the life of one run over all its attempts, with its cost.

    Ends, causes, nodes, steps lost, and GPU hours.

    Attempts are joined by the restarts that the store knows of, by a job's own id, and by user, name and GPUs.
    """
    from assistant.reports.reliability.job_life import life_report, read_life

    invocation = invocation_of(context)
    how = report_source(invocation, ReportOptions(source, columns, None, begin, until, zone))
    facts = incidents_of_store(invocation, without=no_store)
    life = read_life(how.request, job, facts, slices=how.slices, progress=how.progress)
    usage_report = life_report(life, how.frame(f"The life of job {job}", life.form, life.left_out))
    show(invocation, usage_report, ReportFiles(html, csv, parquet), as_json=as_json)


@report_app.command(
    "cost",
    epilog=examples(
        "nightshift report cost --since 30d --price 2.10",
        "nightshift report cost sacct.txt.gz --prices prices.toml --html cost.html",
    ),
)
def cost(
    context: typer.Context,
    source: Source = "",
    price: Annotated[
        float | None, typer.Option("--price", min=0, metavar="NUMBER", help="What a GPU hour costs where no other price is said.")
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="TOML: currency, gpu_hour, and prices by [account], [partition]."),
    ] = None,
    currency: Annotated[str, typer.Option("--currency", metavar="WORD", help="Of --price: EUR, USD.")] = "",
    columns: Columns = None,
    types: Types = None,
    begin: Since = "",
    until: Until = "",
    zone: Zone = "",
    name: Name = "",
    html: Html = None,
    csv: Csv = None,
    parquet: Parquet = None,
    no_store: NoStore = False,
    as_json: Json = False,
) -> None:
    """Report what the GPU hours of accounts and users cost, and what was lost.

    The price of a job is that of its account, else of its partition, else the common one. Jobs without a price are counted and
    named. It has no --anonymise: a bill is about names.
    """
    from dataclasses import replace

    from assistant.errors import UsageError
    from assistant.reports.reliability.cost import MOST_PRICE, Prices, cost_report, is_currency, is_price, read_prices
    from assistant.reports.reliability.reading import read_failures

    if price is None and prices is None:
        raise UsageError("nothing says what a GPU hour costs; give --price 2.10, or --prices FILE (docs/failure_reports.md)")
    if price is not None and not is_price(price):
        raise UsageError(f"--price {price}: wanted a number such as 2.10, at most {MOST_PRICE:,}")
    if currency and not is_currency(currency):
        raise UsageError(f"--currency {currency[:40]!r}: wanted capital letters such as EUR")
    listed = read_prices(prices) if prices is not None else Prices()
    listed = replace(listed, gpu_hour=listed.gpu_hour if price is None else price, currency=currency or listed.currency)
    invocation = invocation_of(context)
    how = report_source(invocation, ReportOptions(source, columns, types, begin, until, zone, name))
    facts = incidents_of_store(invocation, without=no_store)
    read = read_failures(how.request, facts, slices=how.slices, progress=how.progress)
    frame = how.frame("What the GPU hours cost", read.form, read.left_out)
    show(invocation, cost_report(read, frame, listed), ReportFiles(html, csv, parquet), as_json=as_json)


report_app.command("user", epilog=USER_EXAMPLES)(user)
report_app.command("node", epilog=NODE_EXAMPLES)(node)
report_app.command("week", epilog=WEEK_EXAMPLES)(week)
