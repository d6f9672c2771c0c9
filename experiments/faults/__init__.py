"""What faults, kills and hostile messages do to a run."""
