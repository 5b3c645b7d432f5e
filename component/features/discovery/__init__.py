"""What others learn about the agents without talking to them: disco, vCards, and plain queries."""
