"""Skills as the tools of a model: each call is a request to run a skill."""
