"""The life of a service, simulated with faults: see docs/explanation/simulation.md."""
