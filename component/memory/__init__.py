"""What agents remember, as files that people can read, edit and keep under version control."""
