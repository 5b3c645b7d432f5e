"""A simulated life of the service, with faults, in one process: see docs/explanation/simulation.md."""
