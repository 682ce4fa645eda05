"""Git sources: fetched into mirrors, checked, exported as archives."""
