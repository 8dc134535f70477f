"""The operator's chat: a full-screen terminal application. Textual is imported here and nowhere else.

Widgets show records and post messages. Everything that blocks (store, scheduler, nodes, models) is asked by `Desk` on lanes of its
own and comes back as a message; only handlers change what is on the screen.
"""
