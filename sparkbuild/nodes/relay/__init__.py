"""Bytes from node to node."""
