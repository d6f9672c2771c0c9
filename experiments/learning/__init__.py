"""Presets and small games: does Arena learn, and how fast."""
