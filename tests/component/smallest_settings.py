"""The smallest file that is complete, and the environment that it needs."""

SMALLEST = """\
[server]
component_domain = "agent.example.com"
component_secret = "${AGENT_SECRET}"
"""
ENVIRON = {"AGENT_SECRET": "geheim"}
