"""Games of OpenSpiel, ids ``openspiel:<game>``. Torch-free."""
