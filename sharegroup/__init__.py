"""The command line ``sharegroup``: one module for each subcommand.

Rule: a user's mistake is one line on standard error and exit status 1, never a traceback.
"""
