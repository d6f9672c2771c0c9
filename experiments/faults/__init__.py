"""Faults, kills and hostile messages."""
