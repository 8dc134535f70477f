"""`nightshift model list|use|info`: which language models there are, and which one is in use."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assistant.cli.context import Invocation, Json, examples, invocation_of
from assistant.cli.output import print_block, print_json, print_line, print_pairs, print_table
from assistant.errors import NightshiftError, UsageError

if TYPE_CHECKING:
    from assistant.config import ModelSettings

LIST_EXAMPLES = examples("nightshift model list", "nightshift model list --folder /models --json | jq -r .path")
INFO_EXAMPLES = examples("nightshift model info", "nightshift model info ~/models/qwen2.5-7b-instruct-q4_k_m.gguf")
USE_EXAMPLES = examples(
    "nightshift model use ~/models/qwen2.5-7b-instruct-q4_k_m.gguf",
    "nightshift model use http://gpu01:8000/v1 --name qwen2.5-32b --key-file ~/.nightshift-key",
    "nightshift model use none",
)

Folder = Annotated[
    Path | None, typer.Option("--folder", metavar="DIR", help="Folder of models; default: $XDG_DATA_HOME/nightshift/models.")
]


def folder_of(folder: Path | None) -> Path:
    """Return the folder of models."""
    from assistant.llm.models import models_folder

    return folder or models_folder(os.environ.get("XDG_DATA_HOME", ""), Path.home())


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
    path = invocation.config or _own_settings()
    old_text = path.read_text(encoding="utf-8") if path.is_file() else ""
    new_text = with_table(old_text, lines)
    _checked(new_text, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(new_text, encoding="utf-8")
    new.replace(path)
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


def with_table(text: str, lines: list[str]) -> str:
    """Return a settings file with another [model] table, or none."""
    remaining = re.sub(r"(?ms)^\[model\][^\n]*\n.*?(?=^\[|\Z)", "", text).rstrip("\n")
    parts = ([remaining] if remaining else []) + (["\n".join(lines)] if lines else [])
    return "\n\n".join(parts) + "\n" if parts else ""


def _checked(text: str, path: Path) -> None:
    import tempfile

    from assistant.config import load

    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            load(config=Path(file.name))
        except NightshiftError as error:
            raise UsageError(f"{path}: was left as it is: with the new table it would be wrong: {error}") from error


def _own_settings() -> Path:
    base = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".config") / "nightshift" / "config.toml"


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
