"""Kafka: messages in, handed on in batches whose offsets follow, and messages out.

What is in a message is nobody's business here: values are bytes.
"""
