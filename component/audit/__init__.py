"""The record of what was done and decided: append-only, hash-chained, without secrets."""
