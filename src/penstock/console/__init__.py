"""What all commands share: output, exit codes, typed values, and finding the database."""
