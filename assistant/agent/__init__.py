"""The agent: answers questions about jobs, nodes and incidents from what reading tools return, and proposes changes.

Without a language model (`semantic`) the choice of a tool is learned from sentences, its arguments are names that exist, and the
answer is a template around what the tool returned. With one (`conversation`) the same tools stand open to it. Either way every
call goes through the gate, a change is only ever proposed, and an answer says what it rests on.

Read `answer` (what comes back) and `turn` (one question being answered); then what understands a question, `chooser` and `reader`
on `words`, `entities` and `dialogue`; then what answers, `tellers` with the `tell_*` modules, or `toolbox` and `shortening` for a
model, whose words `grounding` holds against the evidence. `descriptions` is what a model writes outside a conversation.
"""
