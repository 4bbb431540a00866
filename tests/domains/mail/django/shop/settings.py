"""The settings of a small Django project; tests fill in the address of their database."""

SECRET_KEY = "for tests only"
TIME_ZONE = "UTC"
USE_TZ = True
LOGGING_CONFIG = None
ALLOWED_HOSTS = ["testserver"]
INSTALLED_APPS = ["tests.domains.mail.django.shop"]
ROOT_URLCONF = "tests.domains.mail.django.shop.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {"ENGINE": "django.db.backends.postgresql"},
    "second": {"ENGINE": "django.db.backends.postgresql"},
    "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
}

EMAIL_BACKEND = "penstock.django.EmailBackend"
DEFAULT_FROM_EMAIL = "Shop <shop@example.com>"
SERVER_EMAIL = "server@example.com"
EMAIL_SUBJECT_PREFIX = "[shop] "
ADMINS = [("Root", "root@example.org")]
