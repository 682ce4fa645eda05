"""Reaching nodes: connections, facts, and the artifacts they hold."""
