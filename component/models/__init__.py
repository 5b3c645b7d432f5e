"""Language models of all providers behind one protocol."""
