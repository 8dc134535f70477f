"""The watchdog: `nightshift watch` as a daemon. It leads or stands by, looks, lets incidents be worked on.

Read `loop` (passes, and the threads that work on incidents), `pass_result` (what a pass saw and did not), `pass_reports` (who is
told of a pass), then those who are told: `notifications` on `delivery`, `metrics`, `audit_anchors`. `journal` is how the
watch speaks to its machine: log, systemd, sign of life; `status` reads from outside how it stands.
"""
