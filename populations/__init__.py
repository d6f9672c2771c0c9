"""The controller's half of Arena: who trains, against whom, and how. Never imports torch."""
