"""The ways in: commands in a shell; later the watchdog and the chat."""
