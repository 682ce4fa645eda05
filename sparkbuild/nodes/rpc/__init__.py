"""One call of an agent, whatever the way to it."""
