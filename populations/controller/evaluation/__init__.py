"""Matches that rate players, and how many of them: during training, and after it."""
