"""``sharegroup web``: a page on which people watch groups and act on them.

Rule: every read and action is a call that the command line also makes, and the coordinator checks both alike. The page
shows all names and contents of records, groups and members as text.
"""
