"""Templates: filled in with nothing but the values they are given, in bounds of size and time."""
