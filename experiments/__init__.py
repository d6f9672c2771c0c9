"""Experiments: programs that measure, and pass or fail nothing."""
