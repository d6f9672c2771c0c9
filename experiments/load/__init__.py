"""Costs of large leagues and many learners."""
