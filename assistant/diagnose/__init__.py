"""From the files of a failed job to a diagnosis: its reason, cited lines, nodes at fault, and what to do.

A `case.py` is what one attempt left behind; `facts.py` scans and parses it once, with what `knowledge.py` holds; `verdict.py` makes
one `Diagnosis` of the facts, always the same for the same case, or says that the reason is unknown; `answer.py` shows it. The
folders, each of which builds on those before it:

- `readers/`: what a line, a traceback, a kernel or a launcher says;
- `weighing/`: what speaks for which reason, how the attempt ended, which node is to blame;
- `advice/`: what has to be changed;
- `learning/`: what memory, ranker and language model say, and what is learned from a confirmed incident.
"""
