"""Carrying out one assignment: train or evaluate, with its environments and players."""
