"""What the controller knows, what it is told, and what it wants done."""
