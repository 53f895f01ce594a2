"""Simulations: many restarts, crashes and outages on one seeded clock. A seed replays a run exactly.

The service (``service.py``) is the coordinator's real runtime and transactions in a simulated world: clock and
processes (``simulated_world.py``), a network that loses, doubles and delays (``network.py``), a store that fails
(``simulated_store.py``), brokers, coordinators, queries and ShareConsumers.
Two judges look on: ``ledger.py`` reads what becomes durable, ``witness.py`` hears what is answered. What is switched
off in tests/mistakes shows that they would notice.
"""
