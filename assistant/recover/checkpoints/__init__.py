"""Which checkpoints a job has, and which of them may be loaded: told from the files alone, without torch."""
