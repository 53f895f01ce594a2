"""What every process of ours needs: log format, rate limits of the log, properties files, its exit."""
