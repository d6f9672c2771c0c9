"""KEY=VALUE of a command line, and other names under which keys are read."""
