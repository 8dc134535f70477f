"""The page, the tables of files and JSON: whole, escaped, without a connection to anywhere, and without names where asked."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from assistant.display import csv_cell, html_text, json_text
from assistant.reports.exports import as_object, csv_files
from assistant.reports.figures import CurvePlot, FigureTable, HeatPlot, PlotCurve, StackPlot, UsageReport
from assistant.reports.page import STYLE, page
from assistant.reports.plots import svg
from bench import _accounting
from tests.unit.reports_here import read_text, report_of, table_of

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><b>bold",
    "&lt;b&gt;",
    "javascript:alert(1)",
    "\x1b[31mred\x1b[0m",
    "\u202egnp.exe",
    "=HYPERLINK(1)",
    "a" * 500,
    "]]>",
)
VOID = {"meta", "img", "br", "link", "input"}


class Elements(HTMLParser):
    """Collects elements and attributes, and checks that what is opened is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def elements(text: str) -> Elements:
    parser = Elements()
    parser.feed(text)
    parser.close()
    return parser


def hostile_report(folder: Path, *, anonymous: bool = False) -> UsageReport:
    rows = [
        f"{n}|{name}|{name}|{name}|{name}|COMPLETED|0:0|{1690000000 + n}|{1690000100 + n}|{1690003700 + n}|1|8|gres/gpu=8"
        for n, name in enumerate([name for name in HOSTILE if "|" not in name] * 12)
    ]
    rows.append("<b>|x|y|COMPLETED")
    return report_of(read_text("\n".join([_accounting.COLUMNS, *rows]), folder, anonymous=anonymous))


@pytest.fixture
def report(tmp_path: Path) -> UsageReport:
    return report_of(read_text("\n".join(_accounting.lines(2000, "sacct")), tmp_path, zone="Asia/Shanghai"), "Asia/Shanghai")


def test_the_page_is_whole_and_loads_nothing(report: UsageReport) -> None:
    text = page(report)
    parsed = elements(text)
    assert (parsed.open, parsed.wrong) == ([], [])
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(parsed.names)
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name in ("src", "srcset", "action", "style")]
    assert {value[0] for name, value in parsed.attributes if name in ("href", "xlink:href")} == {"#"}
    assert not re.search(r"url\(|@import|https?:|//[a-z]", text)
    assert "default-src 'none'" in text
    ids = [value for name, value in parsed.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert {value[1:] for name, value in parsed.attributes if name == "href"} <= set(ids)


def test_each_plot_says_in_words_what_it_shows(report: UsageReport) -> None:
    plots = [figure for _, figure in report.figures() if not isinstance(figure, FigureTable)]
    assert len(plots) >= 8
    for plot in plots:
        text = svg(plot)
        parsed = elements(text)
        labelled = dict(parsed.attributes)["aria-labelledby"].split()
        assert dict(parsed.attributes)["role"] == "img"
        assert {value for name, value in parsed.attributes if name == "id"} == set(labelled)
        assert plot.title in parsed.texts
        assert plot.about in parsed.texts
        assert len(text) < 60_000


def test_nothing_is_drawn_outside_of_its_picture(report: UsageReport) -> None:
    for plot in (figure for _, figure in report.figures() if not isinstance(figure, FigureTable)):
        text = svg(plot)
        height = float(re.search(r'viewBox="0 0 360 ([\d.]+)"', text).group(1))  # type: ignore[union-attr]
        for x, y, width, tall in re.findall(r'<rect x="([-\d.]+)" y="([-\d.]+)" width="([\d.]+)" height="([\d.]+)"', text):
            assert -0.1 <= float(x) <= float(x) + float(width) <= 360.5
            assert -0.1 <= float(y) <= float(y) + float(tall) <= height
        assert not re.search(r"\bnan\b|\binf\b", re.sub(r"<(?:desc|title)[^>]*>[^<]*", "", text))


def test_light_dark_and_print_have_each_colour() -> None:
    style = STYLE.read_text(encoding="utf-8")
    used = set(re.findall(r"var\((--[\w-]+)\)", style))
    for part in (r"^:root \{(.*?)\n\}", r"prefers-color-scheme:dark\) \{(.*?)\n\}", r"@media print \{(.*?)\n\}"):
        block = re.search(part, style, re.DOTALL | re.MULTILINE)
        assert block is not None
        assert used <= set(re.findall(r"(--[\w-]+):#", block[1])), part


def test_names_that_people_wrote_stay_text(tmp_path: Path) -> None:
    parsed = elements(page(hostile_report(tmp_path)))
    assert (parsed.open, parsed.wrong) == ([], [])
    assert not {"script", "img"} & set(parsed.names)
    assert any("<script>alert(1)</script>" in text for text in parsed.texts)
    assert not any("\x1b" in text or "\u202e" in text for text in parsed.texts)


def test_no_cell_of_a_file_is_a_formula(tmp_path: Path) -> None:
    for name, text in csv_files(hostile_report(tmp_path)):
        assert re.fullmatch(r"[\w.-]+\.csv", name)
        for row in csv.reader(io.StringIO(text)):
            assert not [cell for cell in row if cell[:1] in "=@\t\r" and cell]
            assert not [cell for cell in row if cell[:1] in "+-" and cell and not re.fullmatch(r"[-+][\d.e+-]+", cell)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("=1+1", "'=1+1"),
        ("-1.5e-3", "-1.5e-3"),
        ("-x", "'-x"),
        ("+49", "+49"),
        ("@a", "'@a"),
        (" =1", "' =1"),
        ("\t=1", "\\t=1"),
        ("a;=cmd()", "a;'=cmd()"),
        ('a;"=cmd()"', 'a;\'"=cmd()"'),
        ("a; @x;-1;+y", "a;' @x;-1;'+y"),
        ("1;-2.5e3;3", "1;-2.5e3;3"),
        ("\uff1d1+1", "'\uff1d1+1"),
        ("a=b;c-d", "a=b;c-d"),
        ("ann", "ann"),
        (3.5, "3.5"),
    ],
)
def test_cells(text: object, wanted: str) -> None:
    assert csv_cell(text) == wanted


def test_attributes_and_texts_of_html() -> None:
    assert html_text("<a b='c' d=\"e\">&") == "&lt;a b=&#x27;c&#x27; d=&quot;e&quot;&gt;&amp;"
    assert html_text("a\nb\x1b") == "a\\nb\\x1b"


def test_json_has_every_figure_with_units_and_intervals(report: UsageReport) -> None:
    made = json.loads(json_text(as_object(report)))
    assert set(made["figures"]) == {figure.key for _, figure in report.figures()}
    failed = made["headline"]["failed, of jobs with GPUs"]
    assert failed["low"] < failed["value"] < failed["high"]
    assert failed["n"] == made["headline"]["jobs with GPUs"]["value"]
    rows = made["figures"]["by_type"]["rows"]
    assert sum(row["jobs"] for row in rows) == 2000
    assert {row["kind"] for row in made["left_out"]["rows"]} >= {"duplicate", "never began", "negative queue"}


def test_files_have_what_json_has(report: UsageReport) -> None:
    files = dict(csv_files(report))
    assert set(files) == {f"{figure.key}.csv" for _, figure in report.figures()} | {"left_out.csv"}
    rows = list(csv.DictReader(io.StringIO(files["by_type.csv"])))
    assert sum(int(row["jobs"]) for row in rows) == 2000
    assert {"share_of_jobs", "share_of_jobs_low", "share_of_jobs_high", "share_of_jobs_n"} <= set(rows[0])


def test_names_are_gone_where_asked(tmp_path: Path) -> None:
    text = "\n".join(_accounting.lines(500, "sacct")).replace("|train|", "|secretpart|").replace("|team", "|secretteam")
    text = re.sub(r"\|u(\d{3})\|", r"|secretuser\1|", text) + "\nsecretid|x|y\n"
    made = report_of(read_text(text, tmp_path, anonymous=True))
    shown = page(made) + json_text(as_object(made)) + "".join(text for _, text in csv_files(made))
    assert "secret" not in shown
    assert "user 1" in shown
    plain = report_of(read_text(text, tmp_path))
    assert "secretuser" in page(plain)
    assert [row[1:] for row in table_of(made, "by_user").rows] == [row[1:] for row in table_of(plain, "by_user").rows]


def test_labels_of_curves_do_not_cover_one_another() -> None:
    points = tuple(float(10 ** (n / 8)) for n in range(49))
    curves = tuple(
        PlotCurve(f"kind {k}", 1000, points, tuple(min(1.0, max(0.0, (n - 4 * k) / 20)) for n in range(49))) for k in range(6)
    )
    text = svg(CurvePlot("x", "X", "duration", "s", "share", "share", curves, "about"))
    boxes = [(float(x), float(y)) for x, y in re.findall(r'<text x="([\d.]+)" y="([\d.]+)" class="label', text)]
    assert len(boxes) == 6
    for place, (x, y) in enumerate(boxes):
        for other_x, other_y in boxes[place + 1 :]:
            assert abs(y - other_y) >= 11 or abs(x - other_x) >= 60


def test_plots_of_nothing_are_drawn() -> None:
    assert "about" in svg(CurvePlot("x", "X", "duration", "s", "share", "share", (), "about"))
    assert "<svg" in svg(StackPlot("x", "X", "GPU h", (), (), (), (), "about"))
    assert "<svg" in svg(HeatPlot("x", "X", "jobs", ("Mon",), ("0",), ((None,),), "about"))
