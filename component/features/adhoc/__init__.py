"""Ad-hoc commands (XEP-0050): skills and commands for every client that supports forms."""
