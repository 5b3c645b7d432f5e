"""What all features are built on: the stream, the tasks, the agents, and the nodes."""
