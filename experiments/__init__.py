"""Experiments: what is too long for a test and prints figures instead of passing."""
