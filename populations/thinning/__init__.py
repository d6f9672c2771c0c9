"""Rules that say which ghosts of a full pool go."""
