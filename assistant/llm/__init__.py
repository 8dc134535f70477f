"""Models of text: what turns lines into vectors and judges lines that no signature knows. Nothing here reads logs or the store.

The embedded model: read `embedded` (which is there), `encoder` and `heads`, with `features`, `hashing` and `ranker` for where it
is not. Language models: read `models` (which is configured), `chat` (a turn with tools, GGUF) on `process` and `worker`,
`endpoint` on `sse` and `masking`; `grammar`, `grammar_schema` and `grammar_patterns` hold what a model may say; `gguf` and `pull`
are about files, `trial` measures a model. `scripted` is for tests.
"""
