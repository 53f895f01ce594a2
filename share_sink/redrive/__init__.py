"""Redrive: dead letters are read from their topic and sent back to the topics that they came from."""
