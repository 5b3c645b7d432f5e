"""Skills and tasks over IQs of urn:fluux:agent:0, and their PubSub nodes."""
