"""Room on the disks of nodes."""
