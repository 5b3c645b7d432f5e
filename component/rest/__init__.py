"""HTTP requests as skills: the request of a call, and the output of its response."""
