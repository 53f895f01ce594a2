"""Conformance tests of the KIPs: their shared drivers, and KIP-932's worked example."""
