"""The operator's chat: a full-screen terminal application. Textual is imported here and nowhere else.

Widgets show records and post messages. Everything that blocks (store, scheduler, nodes, models) is asked by `ChatBackend` on
lanes, threads of its own, and comes back as a message; only handlers change what is on the screen.

Read `start` and `app` (the application), `backend` on `coalescing_worker` (what blocks), `snapshot` and the `about_*` modules
(what is read for the screens), `messages` (what comes back), then `screens/` and `widgets/`. The conversation is `talk` on
`sessions`, with its commands in `slash` (which there are) and `commands` (what they do). The log viewer is `logs/`.
"""

import os

# Textual draws at a fixed beat and may leave out one: at its 60 a second a key that comes while something is drawn waits 33 ms
os.environ.setdefault("TEXTUAL_FPS", "120")
