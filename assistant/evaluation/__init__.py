"""The trial coordinator: a checkpoint is evaluated on many datasets, each node loading the model once, metrics apart from GPUs."""
