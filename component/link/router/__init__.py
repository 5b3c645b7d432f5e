"""One typed table of handlers, IQ correlation, admission and error mapping."""
