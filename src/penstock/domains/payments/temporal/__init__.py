"""Payments on Temporal: the three workflows, their activities, and the engine that starts them.

Needs the extra `temporal`, except for `models` and `engine`. Nothing here connects to Temporal:
`compose` passes in what starts workflows.
"""
