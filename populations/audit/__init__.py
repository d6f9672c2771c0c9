"""Consistency of a run's rows and files, and repair of what is inconsistent."""
