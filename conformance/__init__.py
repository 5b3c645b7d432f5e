"""The conformance kit: tests any agent of `urn:fluux:agent:0` over real XMPP.

It knows nothing of the component in this repository: it imports only the protocol types (`xep`) and
the specification's data (`protocol_schemas`). `requirements` contains the requirements for an
agent, `checks` how they are observed, `drivers` how the agent is reached; `runner` combines the
three and `report` presents the results.
"""
