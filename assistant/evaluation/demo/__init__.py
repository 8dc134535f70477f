"""A small real evaluator: a model of NumPy that is trained in seconds, datasets that are made up, metrics that are measured."""
