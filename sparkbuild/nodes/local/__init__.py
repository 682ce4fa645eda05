"""The connection to this machine."""
