"""What is read from playbooks/ and knowledge/: shipped files first, then the site's own folder over them.

A file of the site with the name of a shipped one replaces it. Every mistake is a `ContentError` that names file, line and key.

`reading` reads any of them and says whose files count; then one module for each kind: `reasons` (with advice), `playbooks`,
`devices` (codes and limits), `faults` (of drills).
"""
