"""Mail: an outbox of e-mails, sent once, at a pace that each provider accepts."""
