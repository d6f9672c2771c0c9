"""The configuration of a run: what users write, what it resolves to, and `run.yaml`."""
