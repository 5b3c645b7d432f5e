"""Built-in skills that reach outside. Each is off unless the settings have its section."""

TURNED_ON_BY = (
    "xmpp_send",
    "url_fetch",
    "web_search",
    "http_webhook",
    "email_send",
    "github",
)
"""The sections that turn it on; without one of them, its settings are not imported."""
