"""Whether an engine is ready: what its nodes see of it, what its log says, and what it answers."""
