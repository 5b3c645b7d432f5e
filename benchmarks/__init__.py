"""What is measured, each figure beside a peer of the same run. `python -m benchmarks` shows all."""
