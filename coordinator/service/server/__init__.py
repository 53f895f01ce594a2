"""The server for clients: Arrow Flight, its listener, its limits for connections."""
