"""Simulations: many restarts, crashes and outages on one seeded clock. A seed replays a run exactly."""
