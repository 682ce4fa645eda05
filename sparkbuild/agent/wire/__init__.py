"""How the agent talks, and the records that both sides share."""
