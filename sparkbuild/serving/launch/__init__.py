"""Launching a lane and stopping it: ranks and what they run in, on all nodes or on none."""
