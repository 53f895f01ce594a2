"""The RPC server: Arrow Flight, its listener, its limits for connections."""
