"""Parts that each process of the service needs: clock, signals, log formats, rate limits, the stall watch, exit."""
