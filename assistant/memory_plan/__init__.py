"""Plans for runs that had too little memory: which shortage it is, what holds the memory, and what to change, with numbers.

In the order of reading:

- `problems`: which shortage a log shows, from messages (`assistant.diagnose.readers.memory_messages`), frames (`places`)
  and `figures`.
- `intake`: the lines of a log that count, and the program whose arguments do.
- `setup`: what a run's memory depends on; `arguments` reads it from the run's own arguments, with `reader` (names of each
  framework) and `shapes` (models by name or `config.json`).
- `estimate`: bytes on the fullest GPU, part by part; formulas in docs/memory.md.
- `ladder`: ways out and the search over them; `spelling` writes them in the arguments of the run's framework.
- `plan`: all of it as one frozen record.

Nothing here changes anything.
"""
