"""This machine: its system, processes, disks, GPUs and networks."""
