"""The conformance kit: judges any agent of `urn:fluux:agent:0` over real XMPP.

It knows nothing of the component in this repository: what it imports is the wire (`xep`) and the
specification's data (`protocol_schemas`). `requirements` says what is asked of an agent, `checks`
how that is observed, `drivers` how the agent is reached, `runner` puts the three together and
`report` tells what came of it.
"""
