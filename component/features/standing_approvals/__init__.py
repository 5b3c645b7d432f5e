"""Standing approvals: what people have allowed without being asked each time."""
