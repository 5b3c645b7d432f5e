"""One file per protocol face: a typed request in, one room called, a typed reply out."""
