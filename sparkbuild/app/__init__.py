"""What one run does with a workspace: goals, facts, plan. Knows no doit."""
