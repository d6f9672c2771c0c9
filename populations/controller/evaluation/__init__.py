"""Which matches are played to rate players, and how many: during training, and after it."""
