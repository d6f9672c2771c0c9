"""Ratings alone: do their intervals hold the truth."""
