"""Measurements that a reader can repeat: each module is a command that prints a table."""
