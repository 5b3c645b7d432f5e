"""The control socket: how the command line talks to the service that runs beside it."""
