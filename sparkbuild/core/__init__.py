"""The vocabulary every other room speaks: keys, goals, plans, reasons, state. Knows no docker, ssh or doit."""
