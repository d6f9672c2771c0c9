"""Assignments: how they are given to learners, and how they end, fail or are lost."""
