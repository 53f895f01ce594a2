"""An explorer: all interleavings of a small world, within bounds, through the real core, held to the guarantee.

    setting.py       how large the world is, and how much may go wrong in one run
    requests.py      what members ask, and the real transactions that answer
    coordinators.py  coordinator processes as values: the real runtime and core, on a log with faults and a fence
    memory.py        a group's state as a value, and the same state some time later
    members.py       Spark queries with their logs, replays and sinks, and a ShareConsumer
    world.py         all that can happen next
    happened.py      what an append says about the guarantee's exceptions, and what must never be appended
    hosts.py         the coordinators of two hosts, and what the product decides about who owns the group
    host_steps.py    all that can happen next where there are two hosts
    guarantee.py     the guarantee, said of the end that a world comes to when nothing goes wrong any more
    explorer.py      breadth first, so that the first trace found is a shortest one
    mistakes.py      known mistakes, each with a world in which it is found

Real are the runtime (rounds, appends, loads after a fault), the transactions, the commands and the records. Modelled
are Spark, its logs and sinks, the store and its fence, the network, the clock, and what the broker says.

Three things keep the walk small. Worlds that differ in the clock alone are one. What a query does by itself (writes its
logs and its output) is taken at once, or its process dies there: whatever others do meanwhile comes to the same before
and after. And from each world on, the rest of the story is told in one way only: nothing goes wrong any more.

Not in this world: a group's first start offset, several topics at a time, new records,
AvailableNow, RENEW, dead letters, delays, two drivers that write on one checkpoint at the same time,
records that always fail (the simulation has those).
"""
