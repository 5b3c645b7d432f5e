"""The skills that every installation has."""
