"""Methods asked of a Trace: labelled results with their provenance."""
