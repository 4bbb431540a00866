"""An app without handlers of its own: its workers run the lanes that the domains bring."""

from penstock import Penstock

app = Penstock()
