"""The operator's chat: a full-screen terminal application. Textual is imported here and nowhere else.

Widgets show records and post messages. Everything that blocks (store, scheduler, nodes, models) is asked by `ChatBackend` on
lanes, threads of its own, and comes back as a message; only handlers change what is on the screen.

Read `launch` (its start), `app` (the application), `backend` (what blocks), `snapshot`, `store_reading` and `about_incident` (what
is read for the screens), `messages` (lanes, and what comes back on them), `frame`, `first_line` (how things stand, in one line)
and `words` (what all screens share), then `screens/` and `widgets/`. `citations` leads from a verdict to lines of a file, `curves`
draws loss and pace. The conversation is `talk` on `sessions`, with its `commands`; what it says by itself is
`news`, from `news_feed`. `terminal` is the title, `outside_programs` are editor and pager. The log viewer is `logs/`.
"""

import os

# Textual draws at a fixed beat and may leave out one: at its 60 a second a key that comes while something is drawn waits 33 ms
os.environ.setdefault("TEXTUAL_FPS", "120")
