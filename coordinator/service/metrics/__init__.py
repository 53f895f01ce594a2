"""The coordinator's metrics: counters of what became durable, gauges of the groups, and the endpoint for Prometheus."""
