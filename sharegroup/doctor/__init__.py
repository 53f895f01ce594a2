"""``sharegroup doctor``: names what is wrong with a group, and what to do.

Rule: the rules are pure functions of facts. Only :mod:`sharegroup.doctor.facts` asks coordinators and brokers."""
