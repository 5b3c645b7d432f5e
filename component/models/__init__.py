"""Language models behind one protocol, whoever runs them."""
