"""This node's docker engine, asked and told through its socket."""
