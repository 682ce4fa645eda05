"""Gates: what a served model must answer before its lane counts as served."""
