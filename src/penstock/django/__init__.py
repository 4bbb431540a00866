"""For Django projects: an e-mail backend that enqueues mails in Django's own transaction."""

from penstock.django.backend import EmailBackend, InvalidMessage

__all__ = ["EmailBackend", "InvalidMessage"]
