"""The command line: xmpp-agent init, doctor, run, skills, demo."""
