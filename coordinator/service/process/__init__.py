"""Parts that every process of ours needs: clock, log format, rate limits of the log, properties files, exit."""
