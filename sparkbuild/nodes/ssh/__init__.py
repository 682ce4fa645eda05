"""Connections to other machines."""
