"""The actions of tasks."""
