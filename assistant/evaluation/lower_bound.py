"""How short the evaluation of an instance could be at the very best, whoever schedules it.

Claim: no schedule ends before `lower_bound`. The rules that each schedule keeps:
  (a) the model reaches a node or a GPU by one read of remote storage at least, which takes `fetch_s` when nobody else reads;
  (b) each process that evaluates then loads for `load_s`, holding its GPUs;
  (c) a dataset is prepared at least once, which takes `prepare_s` with its GPUs held, before any of its items;
  (d) its items hold `gpus` GPUs of one node, each for its share of `infer_s`; all of them in one go where it cannot be split;
  (e) its metric takes `metric_s` on one processor after its last item, and no two share a processor.

Proof. Let R = fetch_s + load_s. By (a) and (b) no GPU prepares or evaluates before R.
  Area: by (c) and (d) GPUs are held for W = sum of gpus x (prepare_s + infer_s) after R, and there are M of them; one of them is
  held until R + W / M at least. Where fewer are used, until later.
  Longest dataset: no more than k = nodes x floor(gpus_per_node / gpus) groups of GPUs can evaluate items of one dataset at once, so
  one group evaluates at least ceil(items / k) of them, one after the other, after R + prepare_s (c); where it cannot be split,
  all. By (e) its metric follows.
  Processors: by the same argument with the first of its items no metric begins before the earliest end of a dataset that has one,
  R + min(prepare_s + the longest group); after that, sum of metric_s is shared by the processors. A GPU job that computes its
  own metrics holds one processor of its node, so there are never more metrics at work than max(cpus, gpus) of the nodes.
  All three hold at once, so their maximum is a bound too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from assistant.evaluation.records import Dataset, Estimate, Machines

__all__ = ["lower_bound"]


def lower_bound(datasets: Iterable[Dataset], estimates: Mapping[str, Estimate], machines: Machines) -> float:
    """Return seconds before which no schedule of these datasets ends, if each takes what is estimated; 0 without datasets.

    A dataset of no GPU seconds and no metric still has to be loaded for. One that needs more GPUs than a node has takes for ever.
    """
    ready = machines.fetch_s + machines.load_s
    area = metrics = longest = 0.0
    first_metric = math.inf
    any_left = False
    for dataset in datasets:
        any_left = True
        estimate = estimates[dataset.name]
        groups = machines.nodes * (machines.gpus_per_node // dataset.gpus)
        if not groups:
            return math.inf
        items = math.ceil(dataset.items / groups) if dataset.split else dataset.items
        inferred = estimate.prepare_s + estimate.infer_s * items / dataset.items
        area += dataset.gpus * (estimate.prepare_s + estimate.infer_s)
        metrics += estimate.metric_s
        longest = max(longest, inferred + estimate.metric_s)
        if estimate.metric_s > 0:
            first_metric = min(first_metric, inferred)
    if not any_left:
        return 0.0
    gpus = machines.nodes * machines.gpus_per_node
    processors = machines.nodes * max(machines.cpus_per_node, machines.gpus_per_node)
    shared = first_metric + metrics / processors if metrics else 0.0
    return ready + max(area / gpus, longest, shared)
