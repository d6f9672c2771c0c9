"""Checkpoints between a run's store and learners that do not see its directory."""
