"""``sharegroup web``: a page on which people watch groups and act on them.

Rule: every look and action is a call that the command line makes too, and the coordinator checks it alike. Whatever a
record, a group or a member is called or holds, the page shows it as text.
"""
