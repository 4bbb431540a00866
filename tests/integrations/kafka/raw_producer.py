"""Messages that the Python client refuses to produce, written with the C library under it."""

import ctypes

from tests.kafka_broker import library

PRODUCER = 0
WAIT_MS = 60_000
# Of rd_kafka_vtype_t: which argument of rd_kafka_producev follows.
END, TOPIC, PARTITION, VALUE, HEADER = 0, 1, 3, 4, 9


def put_with_header(
    bootstrap: str, topic: str, value: bytes, *, partition: int, name: bytes, header: bytes
) -> None:
    """Put a message with a header of any name into a topic; return when it is there."""
    kafka = library()
    kafka.rd_kafka_flush.argtypes = [ctypes.c_void_p, ctypes.c_int]
    why = ctypes.create_string_buffer(512)
    options = kafka.rd_kafka_conf_new()
    for option, chosen in ((b"bootstrap.servers", bootstrap.encode()), (b"log_level", b"0")):
        assert kafka.rd_kafka_conf_set(options, option, chosen, why, len(why)) == 0, why.value
    client = kafka.rd_kafka_new(PRODUCER, options, why, len(why))
    assert client, why.value
    try:
        error = kafka.rd_kafka_producev(
            ctypes.c_void_p(client),
            *(ctypes.c_int(TOPIC), ctypes.c_char_p(topic.encode())),
            *(ctypes.c_int(PARTITION), ctypes.c_int32(partition)),
            *(ctypes.c_int(VALUE), ctypes.c_char_p(value), ctypes.c_size_t(len(value))),
            *(ctypes.c_int(HEADER), ctypes.c_char_p(name)),
            *(ctypes.c_char_p(header), ctypes.c_ssize_t(len(header))),
            ctypes.c_int(END),
        )
        assert error == 0, f"librdkafka refuses the message: {error}"
        assert kafka.rd_kafka_flush(client, WAIT_MS) == 0
    finally:
        kafka.rd_kafka_destroy(client)
