"""The view of the shop: an order and its mail in one transaction."""

from django.core.mail import BadHeaderError, send_mail
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from tests.domains.mail.django.shop.models import Order


class OutOfStock(Exception):
    """Rolls an order back, after its mail was sent."""


def place_order(request: HttpRequest) -> HttpResponse:
    number = int(request.POST["number"])
    subject = request.POST.get("subject", f"Order {number}")
    try:
        with transaction.atomic():
            Order.objects.create(number=number)
            send_mail(subject, "Thank you.\n", None, [request.POST["to"]])
            check_stock(request)
    except OutOfStock:
        return HttpResponse("out of stock", status=409)
    except BadHeaderError as refused:
        return HttpResponse(str(refused), status=400)
    return HttpResponse("placed", status=201)


def check_stock(request: HttpRequest) -> None:
    if "is_out_of_stock" in request.POST:
        raise OutOfStock
