"""The public Python API, whose names `arena` resolves."""
