"""Known evaluators as commands of a suite: lm-evaluation-harness and OpenCompass.

    infer  = "{python} -m assistant.evaluation.adapters lm-eval infer {model} {dataset} {first} {last} {out} -- --batch_size auto"
    metric = "{python} -m assistant.evaluation.adapters lm-eval score {dataset} {out} {score}"

What stands behind `--` is handed on. lm-eval scores while it infers, so its metric only reads; OpenCompass infers and scores apart.
Options: lm-evaluation-harness docs/interface.md (August 2026), OpenCompass opencompass/cli/main.py (August 2026).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assistant import processes
from assistant.untrusted import read_json, walk_files

MOST_BYTES = 256 << 20
"""Of one results file: it may hold every sample of a dataset."""

PREFERRED = ("exact_match", "acc_norm", "acc", "pass@1", "f1", "bleu", "accuracy", "score")
"""Metrics of lm-eval, the one that is reported first; else the first by name."""


def lm_eval_infer(model: str, task: str, samples: Path, out: Path, more: Sequence[str] = ()) -> list[str]:
    """Return the words that evaluate the documents of a task that a file of indices names.

    Args:
        model: A folder that Hugging Face loads.
        task: As lm-eval calls it.
        samples: JSON file, `{task: [indices]}`; lm-eval takes it in place of --limit.
        out: Folder of the results and of each document's output.
        more: Further options.
    """
    args = f"pretrained={model}"
    words = ["lm_eval", "--model", "hf", "--model_args", args, "--tasks", task, "--samples", str(samples)]
    return [*words, "--output_path", str(out), "--log_samples", *more]


def opencompass_words(mode: str, model: str, dataset: str, out: Path, more: Sequence[str] = ()) -> list[str]:
    """Return the words that infer a dataset, or score what was inferred.

    Args:
        mode: `infer` or `eval`.
        model: A folder that Hugging Face loads.
        dataset: Name of its configuration, such as `gsm8k_gen`.
        out: Work folder; each call of `infer` makes one by the time in it, and `eval` takes the last.
        more: Further options.
    """
    words = ["opencompass", "--hf-path", model, "--datasets", dataset, "--mode", mode, "--work-dir", str(out), "--debug"]
    return [*words, *(["--reuse", "latest"] if mode == "eval" else []), *more]


def lm_eval_score(results: Sequence[Mapping[str, Any]], task: str) -> dict[str, Any]:
    """Return the score of a task over all ranges that it was evaluated in, by their documents.

    Raises:
        ValueError: A result has no such task, or no number for its metric.
    """
    total, items, metric = 0.0, 0, ""
    for result in results:
        task_results = dict(result.get("results", {}).get(task, {}))
        numbers = {name: value for name, value in task_results.items() if isinstance(value, (int, float)) and "_stderr" not in name}
        if not numbers:
            raise ValueError(f"lm-eval has no result of task {task!r}; it has: {', '.join(result.get('results', {})) or 'none'}")
        metric = metric or min(numbers, key=_rank)
        count = int(result.get("n-samples", {}).get(task, {}).get("effective", 1))
        total, items = total + numbers[metric] * count, items + count
    return {"score": total / max(1, items), "metric": metric, "items": items}


def _rank(name: str) -> tuple[int, str]:
    plain = name.partition(",")[0]
    return (PREFERRED.index(plain) if plain in PREFERRED else len(PREFERRED), name)


def opencompass_score(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean over the parts of a dataset of the first number of each, in per cent made a share.

    Raises:
        ValueError: There is no number.
    """
    firsts = []
    for result in results:
        numbers = [
            (name, value) for name, value in result.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        if not numbers:
            raise ValueError(f"OpenCompass gave no number: {str(dict(result))[:200]}")
        firsts.append(numbers[0])
    if not firsts:
        raise ValueError("OpenCompass left no result")
    mean = sum(value for _, value in firsts) / len(firsts)
    return {"score": mean / 100, "metric": firsts[0][0], "parts": len(firsts)}


def _infer(kind: str, words: Sequence[str], more: Sequence[str]) -> int:
    model, dataset, first, last, out = words
    folder = Path(out)
    folder.mkdir(parents=True)
    if kind == "opencompass":
        (folder / "model.json").write_text(json.dumps({"model": model}), encoding="utf-8")
        return processes.run(
            opencompass_words("infer", model, dataset, folder, more), environment=processes.own_environment()
        ).returncode
    samples = folder / "samples.json"
    samples.write_text(json.dumps({dataset: list(range(int(first), int(last)))}), encoding="utf-8")
    return processes.run(lm_eval_infer(model, dataset, samples, folder, more), environment=processes.own_environment()).returncode


def _score(kind: str, words: Sequence[str], more: Sequence[str]) -> int:
    dataset, out, score = words[0], Path(words[1]), Path(words[2])
    if kind == "opencompass":
        for path in (path for path in _below(out) if path.name == "model.json"):
            model = read_json(path, MOST_BYTES)["model"]
            words = opencompass_words("eval", model, dataset, path.parent, more)
            status = processes.run(words, environment=processes.own_environment()).returncode
            if status:
                return status
        score_record = opencompass_score([read_json(path, MOST_BYTES) for path in _below(out) if path.match("results/*/*.json")])
    else:
        score_record = lm_eval_score([read_json(path, MOST_BYTES) for path in _below(out) if path.match("results_*.json")], dataset)
    score.write_text(json.dumps(score_record), encoding="utf-8")
    return 0


def main(words: Sequence[str]) -> int:
    """Run `KIND infer MODEL DATASET FIRST LAST OUT` or `KIND score DATASET OUT SCORE`, and return the exit status."""
    cut = list(words).index("--") if "--" in words else len(words)
    kind, step, *arguments = [*words[:cut], "", ""]
    arguments, more = arguments[:-2], words[cut + 1 :]
    lengths = {"infer": 5, "score": 3}
    if kind not in ("lm-eval", "opencompass") or len(arguments) != lengths.get(step):
        sys.stderr.write(f"usage: {(main.__doc__ or '').splitlines()[0]}\n")
        return 2
    try:
        return (_infer if step == "infer" else _score)(kind, arguments, more)
    except (OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"{kind} {step}: {error}\n")
        return 1


def _below(folder: Path) -> list[Path]:
    return sorted(walked.path for walked in walk_files(folder))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
