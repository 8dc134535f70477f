"""What the agent, a playbook and cron may do: typed functions, one area a file, found by name."""
