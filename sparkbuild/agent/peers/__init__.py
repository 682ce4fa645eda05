"""Giving staged files to other nodes."""
