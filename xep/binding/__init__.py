"""Declare an XML element once as a msgspec.Struct; decoder and encoder come from it."""
