"""What the shop answers."""

from django.urls import path

from tests.domains.mail.django.shop.views import place_order

urlpatterns = [path("orders/", place_order)]
