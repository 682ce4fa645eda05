"""Lanes on this node: launched, watched, stopped."""
