"""What the conformance tests of the KIPs share, and KIP-932's worked example."""
