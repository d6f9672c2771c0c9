"""`arena bench`: measurements, each against its bound."""
