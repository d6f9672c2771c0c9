"""Observations and actions as flat rows, and additions to them."""
