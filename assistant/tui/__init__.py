"""The operator's chat: a full-screen terminal application. Textual is imported here and nowhere else.

Widgets show records and post messages. Everything that blocks (store, scheduler, nodes, models) is asked by `Desk` on lanes of its
own and comes back as a message; only handlers change what is on the screen.
"""

import os

# Textual draws at a fixed beat and may leave out one: at its 60 a second a key that comes while something is drawn waits 33 ms
os.environ.setdefault("TEXTUAL_FPS", "120")
