"""Observations and actions as flat rows, and what is added to them."""
