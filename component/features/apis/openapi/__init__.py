"""Skills that are operations of an API which a document in OpenAPI 3 describes.

The document is not trusted: it does not decide where requests go, and its size is bounded.
"""
