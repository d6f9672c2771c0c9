"""Alerts and curves: what an event means for people. Decides nothing."""
