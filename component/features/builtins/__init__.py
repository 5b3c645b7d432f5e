"""Built-in skills that reach outside. Each is off unless the settings have its section."""
