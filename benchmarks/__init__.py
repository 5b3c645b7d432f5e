"""The benchmarks, each with a peer in the same run. `python -m benchmarks` runs all."""
