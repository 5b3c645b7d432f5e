"""Runs code that is not trusted: in WebAssembly, and in processes without privileges."""
