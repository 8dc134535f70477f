"""The agent: answers questions about jobs, nodes and incidents from what reading tools return, and proposes changes.

Without a language model (`semantic`) the choice of a tool is learned from sentences, its arguments are names that exist, and the
answer is a template around what the tool returned. With one (`conversation`) the same tools stand open to it. Either way every
call goes through the gate, a change is only ever proposed, and an answer says what it rests on.

Read `answer` (what comes back) and `dialogue` (a question in its conversation); then what understands a question, `languages`
(German and Chinese into English), `chooser` on `words` (with the names in it), and `orders`, which reads what a sentence orders or
forbids; then what answers, `tell_orders` (what no change is proposed for), `tellers` with `tell_jobs` and `tell_incidents`, or
`toolbox` for a model, whose words `grounding` holds against the evidence.
"""
