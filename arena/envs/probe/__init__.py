"""Random play before a run: length, speed, size and stakes of episodes."""
