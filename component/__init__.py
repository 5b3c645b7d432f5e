"""The agent service: an XEP-0114 component that serves urn:fluux:agent:0."""
