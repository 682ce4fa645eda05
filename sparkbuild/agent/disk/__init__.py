"""Files of this node, on its own disk or on a NAS."""
