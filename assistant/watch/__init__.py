"""Notice what happens to jobs and nodes: pure detectors, and the watcher that feeds them in passes.

Read `watcher` first: one pass over the cluster. It reads through `readers` and `view` (what one job shows) and asks the detectors:
`attempts` (ended badly; it also makes events of the others' answers), `hang` with `witness`, `progress` (loss, pace, saves) and
`slowdown` (pace, long before blocks of steps could tell).
`outages` joins what has one cause. What cannot be seen is a `Trouble` (`attempts`), never an event.
"""
