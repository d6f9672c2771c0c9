"""Ranks of a learner: processes that carry out one assignment together."""
