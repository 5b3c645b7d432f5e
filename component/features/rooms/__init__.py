"""Conversations of agents in rooms (XEP-0045): who is heard, who is answered, and how."""
