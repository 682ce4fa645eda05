"""The vocabulary every other room speaks: keys, goals, plans, reasons, state. Knows no docker, ssh or doit."""

STATE = ".sparkbuild"  # the folder in a workspace that is ours
