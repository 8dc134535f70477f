"""The watchdog: `nightshift watch` as a daemon. It leads or stands by, looks, lets incidents be worked on.

Read `loop` (passes, and the threads that work on incidents), `pass_result` (what a pass saw and did not), `pass_reports` (who is
told of a pass), then those who are told: `notifications` on `delivery`, `metrics`, `heartbeat`, `audit_anchors`. `status` reads
from outside how the watch stands; `journal` is its log.
"""
