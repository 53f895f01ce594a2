"""``sharegroup web``: a page on which people watch groups and act on them.

Rule: the command line makes the same calls for each read and action, and the coordinator checks both alike. The page
shows all names, and all content of records, groups and members, as text."""
