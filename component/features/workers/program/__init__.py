"""The process that runs skills for services: `xmpp-agent worker`.

It runs on asyncio, which procrastinate requires. It knows no XMPP.
"""
