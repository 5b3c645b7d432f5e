"""The results of a run, for people and for machines: text, JSON, JUnit XML, HTML."""
