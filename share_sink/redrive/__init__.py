"""Redrive: reads dead letters from their topic and sends them back to the topics that they came from."""
