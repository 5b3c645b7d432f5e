"""Outgoing HTTP requests, through one gate that checks where each goes."""
