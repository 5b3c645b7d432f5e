"""Skills that people and models propose, with `create_skill`. An admin decides about each."""
