"""What came of a run, for people and for machines: text, JSON, JUnit XML, HTML."""
