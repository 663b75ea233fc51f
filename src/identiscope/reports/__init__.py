"""Traces, results and Runs become pages."""
