"""Questions of views to a run directory: the league at one moment, and what follows from it."""
