"""Objects: typed JSON items of a person, a room or a scope, with an agent."""
