"""Mail: messages that leave once, at a pace that each provider accepts."""
