"""Random play before a run: how long episodes are, how fast, how large, with which stakes."""
