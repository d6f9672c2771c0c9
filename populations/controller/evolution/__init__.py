"""PBT: which policy copies which, new hyperparameters, generations, ghosts, resets."""
