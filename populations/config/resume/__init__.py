"""Rules of a resume: keys that may change, and the world that it finds."""
