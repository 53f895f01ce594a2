"""The command line: ``sharegroup``, one module a subcommand.

Rule: a mistake of the person's is one line on standard error and exit status 1, never a traceback.
"""
