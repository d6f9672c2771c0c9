"""PettingZoo environments, AEC and Parallel, as one batch."""
