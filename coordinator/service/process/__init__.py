"""Parts that each process of the service needs: clock, signals, log formats, the stall watch, exit."""
