"""Chaos: real coordinators, members and a producer on a real broker, and a seeded killer among them.

Rule: the killer's choices come from the seed; what is judged is what lies in the logs afterwards: Kafka's, the members'
own, and nothing that was only in somebody's memory.
"""
