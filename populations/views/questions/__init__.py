"""What views ask a run directory: the league at one moment, and what follows from its rows."""
