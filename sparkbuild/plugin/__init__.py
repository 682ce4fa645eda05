"""The only room that knows doit: goals become tasks here, facts become up-to-date checks, effects become actions."""
