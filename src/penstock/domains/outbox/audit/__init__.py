"""The archive of what was tried: its rows, the seals over them, their check, and retention."""
