"""Notice what happens to jobs and nodes: pure detectors, and the watcher that feeds them in passes.

Read `watcher` first: one pass over the cluster. It reads through `readers` and `view` (what one job shows), asks the detectors
`attempts` (ended badly), `hang` with `witness`, `loss`, `pace` and `saves`, and `findings` makes events of their answers; `outages`
joins what has one cause. What cannot be seen is a `Trouble` (`attempts`), never an event.
"""
