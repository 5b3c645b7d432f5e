"""The wire, typed and sans-IO: no sockets, no clocks, no settings."""
