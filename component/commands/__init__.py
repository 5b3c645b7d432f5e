"""Commands: each is defined once, and used as a form, a slash command or on the command line."""
