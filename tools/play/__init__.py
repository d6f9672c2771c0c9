"""Games of a person against a player, in a terminal and in a browser."""
