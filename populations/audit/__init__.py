"""Checks that a run's rows and files are consistent, and repairs of those that are not."""
