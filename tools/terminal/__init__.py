"""Streams, tables, progress, signals and exit codes: what the commands share."""
