"""Models of text: what turns lines into vectors and judges lines that no signature knows. Nothing here reads logs or the store.

The embedded model: read `embedded` (which is there), `encoder` and its heads, with `features` and `ranker` for where it is not.
Language models: read `models` (which is configured, and its trial), `chat` (a turn with tools, GGUF) on `process` and `worker`,
`endpoint` on `sse`; `grammar` and `grammar_schema` hold what a model may say; `gguf` and `pull` are about
files.
"""
