"""The door for programs: Arrow Flight, its listener, its limits for connections."""
