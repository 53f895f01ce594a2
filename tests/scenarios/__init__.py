"""The stories of docs/trust/protocol.md as golden files: each step, and what the core shows after it.

A file is a list of blocks. A block has comment lines (``#``), one line that says what happens, and, indented, what the
core shows then. ``python -m tests.scenarios`` writes the indented lines anew; read the difference before you commit it.
"""
