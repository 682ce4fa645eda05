"""Where doit asks us: state, up-to-date, runners, reports."""
