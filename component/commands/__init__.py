"""Commands: each defined once, given by form, by slash or on the command line."""
