"""A trial start: a job's script is started once in a sandbox, to see which checkpoint it loads."""
