"""Reads and checks what the user wrote. No network, no docker, no ssh."""
