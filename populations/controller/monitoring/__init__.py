"""Alerts, curves and champions' titles, which tell users what the events of a run mean."""
