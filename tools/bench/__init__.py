"""What ``arena bench`` measures, each thing against its bound."""
