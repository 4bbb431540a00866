"""Kafka: consume messages in batches, with offsets committed afterwards, and publish messages.

Message values are bytes here; their content is decoded elsewhere.
"""
