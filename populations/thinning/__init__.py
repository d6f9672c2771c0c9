"""Rules that choose which ghosts of a full pool are removed."""
