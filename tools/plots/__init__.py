"""Plots of a league's views, for `arena league --plot`."""
