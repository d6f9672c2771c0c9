"""State of the controller, the events that change it and the commands that follow."""
