"""`nightshift model`: which language models there are, which is in use, what it may be trusted with; and the line ranker."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assistant.cli.config import own_settings, write_table
from assistant.cli.context import DownloadProgress, Invocation, Json, app, examples, invocation_of
from assistant.cli.output import print_block, print_json, print_line, print_pairs, print_table
from assistant.errors import NightshiftError, UsageError

if TYPE_CHECKING:
    from assistant.config import ModelSettings
    from assistant.llm.models import ModelTrial, SummaryCase
    from assistant.llm.ranker import CrossValidation, TrainingExample

model_app = app(help="Get, choose and test language models; train the line ranker.", no_args_is_help=True)

Folder = Annotated[
    Path | None, typer.Option("--folder", metavar="DIR", help="Folder of models; default: $XDG_DATA_HOME/nightshift/models.")
]


def folder_of(folder: Path | None) -> Path:
    """Return the folder of models."""
    from assistant.llm.models import models_folder

    return folder or models_folder(os.environ.get("XDG_DATA_HOME", ""), Path.home())


@model_app.command("list", epilog=examples("nightshift model list", "nightshift model list --folder /models --json | jq -r .path"))
def list_models(context: typer.Context, folder: Folder = None, as_json: Json = False) -> None:
    """List the models that are here, and the sizes that suit this machine's memory."""
    from assistant.llm.gguf import available_bytes, read_gguf
    from assistant.llm.models import model_catalogue

    invocation, place = invocation_of(context), folder_of(folder)
    model = invocation.settings.model
    rows = []
    for path in sorted({*place.glob("*.gguf"), *([model.path] if model.path else [])}):
        mark = "in use" if model.path is not None and path.resolve() == model.path.resolve() else ""
        try:
            header = read_gguf(path)
        except NightshiftError as error:
            description, size, note = "?", 0, str(error).partition(": ")[2]
        else:
            description, size = (
                f"{header.architecture} {_short(header.parameters)} {header.quantisation}".rstrip(),
                header.size_bytes,
            )
            note = model_catalogue(invocation.site).of(path.name).note
        if as_json:
            print_json({"path": str(path), "model": description, "size_bytes": size, "used": bool(mark), "note": note})
        rows.append((path.name, description, f"{size / 1e9:.1f} GB", mark, note))
    if as_json:
        return
    if model.url:
        print_line(f"in use: {model.name} at {model.url}")
    if rows:
        print_table(("file", "model", "size", "use", "note"), rows)
    else:
        print_line(f"no models in {place}")
    _sizes(invocation, available_bytes())


def _sizes(invocation: Invocation, free: int) -> None:
    from assistant.llm.models import model_catalogue

    best = model_catalogue(invocation.site).fitting(free)
    print_line()
    rows = [
        (
            f"{entry.memory_gb:g} GB",
            entry.parameters,
            entry.quantisation,
            "fits" if entry.memory_gb * 1e9 <= free else "",
            entry.note,
        )
        for entry in model_catalogue(invocation.site).size
    ]
    print_table(("memory", "parameters", "quantisation", f"{free / 1e9:.0f} GB free", "note"), rows)
    if best is not None:
        print_line()
        print_line(f"what suits this machine: an instruct model of {best.parameters} parameters, {best.quantisation}")


@model_app.command(
    "use",
    epilog=examples(
        "nightshift model use ~/models/qwen2.5-7b-instruct-q4_k_m.gguf",
        "nightshift model use http://gpu01:8000/v1 --name qwen2.5-32b --key-file ~/.nightshift-key",
        "nightshift model use none",
    ),
)
def use_model(
    context: typer.Context,
    choice: Annotated[str, typer.Argument(metavar="FILE|URL|none", help="A GGUF file, an endpoint up to /v1, or none.")],
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What the endpoint calls the model.")] = "",
    key_file: Annotated[Path | None, typer.Option("--key-file", metavar="FILE", help="File that holds the endpoint's key.")] = None,
    write: Annotated[bool, typer.Option("--write/--print", help="Write the settings file, or print the lines only.")] = True,
    as_json: Json = False,
) -> None:
    """Take another language model, or none, from now on.

    A file is checked first and its sha256 noted. The [model] table of your own settings file is written anew; what else stands
    there stays as it is.
    """
    lines = _lines(choice, name, key_file, invocation_of(context).site)
    if not write:
        print_json({"lines": lines}) if as_json else print_block("\n".join(lines))
        return
    invocation = invocation_of(context)
    path = invocation.config or own_settings()
    write_table(path, lines)
    if as_json:
        print_json({"path": str(path), "model": None if choice == "none" else choice})
        return
    print_line(f"{path}: {'the model is ' + choice if choice != 'none' else 'no language model from now on'}")


def _lines(choice: str, name: str, key_file: Path | None, site: Path | None) -> list[str]:
    from assistant.config.loading import toml_text

    if choice == "none":
        return []
    if choice.startswith(("http://", "https://")):
        if not name:
            raise UsageError(f"which model of {choice}? name it with --name; `curl {choice.rstrip('/')}/models` lists them")
        values: dict[str, object] = {"url": choice, "name": name}
        values |= {"key_file": str(key_file.expanduser().absolute())} if key_file else {}
    else:
        from assistant.llm.gguf import digest_of
        from assistant.llm.models import model_catalogue
        from assistant.llm.process import ModelProcess

        path = Path(choice).expanduser().absolute()
        ModelProcess(
            path, context=model_catalogue(site).of(path.name).context, architectures=model_catalogue(site).architectures
        ).check()
        values = {"path": str(path), "sha256": digest_of(path)}
    return ["[model]", *(f"{key} = {toml_text(value)}" for key, value in values.items())]


@model_app.command(
    "info", epilog=examples("nightshift model info", "nightshift model info ~/models/qwen2.5-7b-instruct-q4_k_m.gguf")
)
def model_info(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="A GGUF file; default: the model in use.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a model is, what it needs, and whether it may do which task."""
    invocation = invocation_of(context)
    model = invocation.settings.model
    if file is None and model.path is None:
        values = _endpoint(model) if model.url else {"model": "none", "to do": "nightshift model list; nightshift model use FILE"}
    else:
        values = _file(file or model.path or Path(), invocation)
    if as_json:
        print_json(values)
        return
    print_pairs([(key, _text(value)) for key, value in values.items()])


def _file(path: Path, invocation: Invocation) -> dict[str, object]:
    from assistant.llm.gguf import available_bytes, parts_of, read_gguf
    from assistant.llm.models import model_catalogue

    header, family = read_gguf(path), model_catalogue(invocation.site).of(path.name)
    context = min(family.context, header.context or family.context)
    needed_bytes = sum(part.stat().st_size for part in parts_of(path)) + header.cache_bytes(context)
    converses = header.architecture in model_catalogue(invocation.site).architectures and bool(header.template)
    return {
        "file": str(path),
        "name": header.name,
        "family": family.name,
        "architecture": header.architecture,
        "parameters": header.parameters,
        "quantisation": header.quantisation,
        "context": header.context,
        "licence": header.licence,
        "size_bytes": header.size_bytes,
        "memory_bytes": needed_bytes,
        "fits": needed_bytes < available_bytes(),
        "converses": converses,
        "note": family.note,
        **_trusted(header.path, invocation),
    }


def _trusted(path: Path, invocation: Invocation) -> dict[str, object]:
    """Return which tasks the model in use passed in its trial; nothing about other files."""
    from assistant.llm.models import TASKS, identity

    settings = invocation.settings.model
    if settings.path is None or path.resolve() != settings.path.resolve() or not invocation.settings.store.is_file():
        return {}
    model = identity(settings)
    tried = [task for task in TASKS if invocation.store.trial(model, task) is not None]
    passed = [task for task in tried if invocation.store.may(model, task)]
    return {"tried": tried or "nothing: nightshift model test", "handed to it": passed or "nothing"}


def _endpoint(settings: ModelSettings) -> dict[str, object]:
    from assistant.llm.endpoint import key_of
    from assistant.llm.sse import Endpoint

    endpoint = Endpoint(settings.url, key_of(settings.key_file), timeout_s=settings.timeout_s)
    names = endpoint.names()
    values: dict[str, object] = {"endpoint": endpoint.url, "name": settings.name, "answers": bool(names), "models": names}
    if endpoint.key and endpoint.url.startswith("http://") and not re.match(r"http://(localhost|127\.|\[::1\])", endpoint.url):
        values["note"] = "the key goes over the network in the clear: use https"
    return values


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _short(count: int) -> str:
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"


# `nightshift model test`: what the configured language model may be trusted with.


@model_app.command("test", epilog=examples("nightshift model test", "nightshift model test --json"))
def try_model(context: typer.Context, as_json: Json = False) -> None:
    """Try the model in use against the answers without one.

    Fixed small cases: name the reason of a failure, write a filter rule, sum up an incident. A task is handed to the model only
    where it does better here; what came out is kept with the model's sha256.
    """
    from assistant.llm.models import close_models, identity, open_chat

    invocation = invocation_of(context)
    settings = invocation.settings.model
    chat = open_chat(settings, site=invocation.site)
    if chat is None:
        raise UsageError("there is no language model to test; nightshift model use FILE or URL")
    model = identity(settings)
    invocation.say(f"testing {settings.path or settings.name}; a model on processors takes minutes")
    try:
        trials = _trials(invocation, chat)
    finally:
        close_models()
    now = invocation.store.clock.now()
    for trial in trials:
        invocation.store.keep_trial(
            model, trial.task, {"cases": trial.cases, "model": trial.model, "baseline": trial.baseline}, now
        )
    if as_json:
        for trial in trials:
            print_json({**trial.__dict__, "passed": trial.passed, "model_sha256": model})
        return
    rows = [
        (result.task, result.cases, result.model, result.baseline, result.failed or "", "yes" if result.passed else "no")
        for result in trials
    ]
    print_table(("task", "cases", "model", "without", "errors", "handed to the model"), rows)
    print_line(f"kept for the model {model[:12]}")


def _trials(invocation: Invocation, chat: Any) -> list[ModelTrial]:
    from assistant.content.reasons import reasons
    from assistant.llm import models

    cases = models.cases(invocation.site)
    names = sorted({*reasons(invocation.site), *(case.expect for case in cases.reason)})
    first = cases.reason[0].lines
    # a model that cannot be asked at all is an error, not a model that knows nothing
    models.namer_of(chat, names)(first)
    namer, writer = models.namer_of(chat, names), models.writer_of(chat)
    return [
        models.tried_reasons(cases.reason, namer, _Without(invocation)),
        models.tried_filters(cases.filter, writer, _filter_text, _matches),
        models.tried_summaries(cases.summary, models.summariser_of(chat), _opening),
    ]


def _opening(case: SummaryCase) -> str:
    """Return how the report without a model begins."""
    from assistant.engine.report import opening

    return opening(case.summary, case.state, case.note)


class _Without:
    """Names reasons by all that there is without a language model: rules, memory, the line ranker."""

    def __init__(self, invocation: Invocation) -> None:
        self.engine = invocation.engine()

    def __call__(self, lines: Sequence[str]) -> str:
        """Return the reason that is named."""
        import tempfile

        from assistant.diagnose.case import Case
        from assistant.diagnose.verdict import diagnose

        with tempfile.TemporaryDirectory(prefix="nightshift-test-") as folder:
            log = Path(folder) / "job.log"
            log.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return diagnose(Case.from_path(log), self.engine.knowledge, self.engine.opinions).reason


def _filter_text(lines: Sequence[str]) -> str:
    """Return the pattern that is written without a model."""
    from assistant.logs.templates import Miner
    from assistant.rules.matching import pattern_of

    miner = Miner()
    miner.add(lines)
    templates = miner.templates()
    return (pattern_of(templates[0].pieces(), lines) or "") if len(templates) == 1 else ""


def _matches(pattern: str, line: str) -> bool:
    """Tell whether a pattern matches a line, by Hyperscan, which takes bounded time; False for a pattern that it refuses."""
    from assistant.rules.patterns import Expression, compiled_alone

    hits: list[int] = []
    try:
        compiled = compiled_alone(Expression("written", pattern, False))
    except NightshiftError:
        return False
    compiled.scan(line.encode(), match_event_handler=lambda *_: hits.append(1))
    return bool(hits)


# `nightshift model pull`: get a model.


@model_app.command(
    "pull",
    epilog=examples(
        "nightshift model pull OWNER/REPOSITORY                      # lists its files",
        "nightshift model pull OWNER/REPOSITORY/model-q4_k_m.gguf",
        "nightshift model pull https://mirror.example/model.gguf --sha256 HEX",
    ),
)
def pull_model(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="OWNER/REPOSITORY/FILE on Hugging Face, or a URL.")],
    sha256: Annotated[str, typer.Option("--sha256", metavar="HEX", help="That the file must have.")] = "",
    folder: Folder = None,
    as_json: Json = False,
) -> None:
    """Get a model from Hugging Face or any URL.

    What has come stays when the line breaks: the same command goes on there. The file gets its name when it is whole and right.
    HF_ENDPOINT, HF_TOKEN and the proxies of the environment count. Nothing is used before `nightshift model use`.
    """
    from assistant.llm.pull import files_of, pull, source_of

    invocation = invocation_of(context)
    if "://" not in source and source.count("/") == 1:
        files = files_of(source, os.environ)
        if as_json:
            for path, size in files:
                print_json({"source": f"{source}/{path}", "size_bytes": size})
        else:
            print_table(("source", "size"), [(f"{source}/{path}", f"{size / 1e9:.1f} GB") for path, size in files])
        return
    pulled = pull(source_of(source, os.environ), folder_of(folder), sha256=sha256, report_progress=DownloadProgress(invocation))
    if as_json:
        print_json({"path": str(pulled.path), "sha256": pulled.sha256, "size_bytes": pulled.size_bytes, "checked": pulled.checked})
        return
    print_line(f"{pulled.path}: {pulled.size_bytes / 1e9:.2f} GB, sha256 {pulled.sha256}")
    print_line(f"checked: {f'against {pulled.checked} sha256' if pulled.checked else 'the header only: no sha256 was given'}")
    print_line(f"use it with: nightshift model use {pulled.path}")


FOLDS = 5


@model_app.command(
    "train-ranker",
    epilog=examples("nightshift model train-ranker", "nightshift model train-ranker --from-store --out ranker.safetensors"),
)
def train_ranker(
    context: typer.Context,
    from_store: Annotated[
        bool, typer.Option("--from-store", help="Learn from the store too: learned rules and confirmed incidents.")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the order of lines and of what fills their slots.")] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write here instead of the site's knowledge/ranker.safetensors.")
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Cross-validate before the file is written.")] = True,
    as_json: Json = False,
) -> None:
    """Train the line ranker, which guesses the reason where no rule knows a line.

    It learns from the wordings and examples of the content, the site's too. Prints how it does on wordings that were held out.
    The site's file goes before the shipped one. The same content and seed give the same bytes on the same machine.
    """
    from assistant.llm.ranker import TrainingTerms, cross_validate, train

    invocation = invocation_of(context)
    target = out or _target(invocation)
    with _one_thread():
        from assistant.llm.ranker import save_ranker

        lines = _lessons(invocation, from_store=from_store, seed=seed)
        invocation.say(f"{len(lines)} lines")
        tried = cross_validate(lines, FOLDS, TrainingTerms(seed=seed)) if check else None
        weights = train(lines, TrainingTerms(seed=seed))
        save_ranker(weights, target)
    _show(target, weights.about["digest"], len(lines), tried, as_json=as_json)


@model_app.command("show", epilog=examples("nightshift model show", "nightshift model show --json"))
def show(context: typer.Context, as_json: Json = False) -> None:
    """Show the line ranker in use.

    Prints its file, what it was trained on and the reasons it knows.
    """
    from assistant.llm.ranker import file_of, load_ranker

    path = file_of(invocation_of(context).site)
    ranker = load_ranker(path)
    about = {"name": ranker.name, "file": str(path), "bytes": path.stat().st_size}
    about |= {name: ranker.weights.about.get(name, "") for name in ("lines", "seed", "digest")}
    if as_json:
        print_json({**about, "classes": list(ranker.weights.classes)})
    else:
        print_pairs([*about.items(), ("classes", ", ".join(ranker.weights.classes))])


def _target(invocation: Invocation) -> Path:
    from assistant.errors import UsageError
    from assistant.llm.ranker import FILE

    if invocation.site is None:
        raise UsageError("there is no folder for the site's content, so say where to write: --out FILE (or set `content`)")
    return invocation.site / "knowledge" / FILE


def _lessons(invocation: Invocation, *, from_store: bool, seed: int) -> list[TrainingExample]:
    from assistant.llm.ranker import lessons

    if not from_store:
        return lessons(invocation.site, seed=seed)
    confirmed = [(line, memory.reason) for memory in invocation.store.memories() for line in memory.lines[:1]]
    return lessons(invocation.site, invocation.store.rules(counting=True), confirmed, seed=seed)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep NumPy's products to one thread: they are small, and their sums then come in one order."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    previous = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in previous.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _show(target: Path, digest: str, lines: int, tried: CrossValidation | None, *, as_json: bool) -> None:
    about = {"file": str(target), "bytes": target.stat().st_size, "lines": lines, "digest": digest}
    figures = (
        {
            "held_out_lines": tried.lines,
            "reason": round(tried.reason, 3),
            "among_three": round(tried.third, 3),
            "root": round(tried.root, 3),
        }
        if tried is not None
        else {}
    )
    if as_json:
        by_reason = {name: round(share, 3) for name, (_, share) in tried.by_reason.items()} if tried is not None else {}
        print_json({**about, **figures, "by_reason": by_reason})
        return
    print_pairs([(name.replace("_", " "), value) for name, value in {**about, **figures}.items()])
    if tried is not None:
        print_pairs([(f"  {name}", f"{share:.2f} of {count}") for name, (count, share) in tried.by_reason.items()])
