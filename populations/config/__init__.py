"""The configuration of a run: its YAML keys, their validation and resolution, and `run.yaml`."""
