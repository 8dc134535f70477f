"""The log viewer: a log of any size, or those of all ranks, opened, searched, folded and filtered while the screen stays quick.

Read `rows` (what a row is, which rows there are), then `browser` (what is done to a log), `reader` (the thread that does it) and
what is drawn: `paint`, `view`.
"""
