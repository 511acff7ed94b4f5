"""TravelAPI: flights between airports, bookings, cards, an access token."""

import functools
from typing import Any

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool
from env_service.environments.bfcl.tool_classes import tool_class

_CITIES = (
    *("Rivermist", "Stonebrook", "Maplecrest", "Silverpine", "Shadowridge", "Sunset Valley"),
    *("Oakendale", "Willowbend", "Crescent Hollow", "Autumnville", "Pinehaven", "Greenfield"),
    *("San Francisco", "Los Angeles", "New York", "Chicago", "Boston"),
)
_CURRENCIES = ("RMB", "EUR", "JPY", "GBP", "CAD", "AUD", "INR", "RUB", "BRL", "MXN")
_CLASSES = ("economy", "business", "first")
_TOKEN = {"access_token": "access token"}
_FLIGHT = {"travel_class": {name: f"{name} class" for name in _CLASSES}}
_FLIES = (
    "on {travel_date} from {travel_from} to {travel_to} in {travel_class}",
    "from {travel_from} to {travel_to}, {travel_class}, on {travel_date}",
    "that leaves {travel_from} for {travel_to} on {travel_date}, {travel_class}",
)


@functools.cache
def _routes() -> tuple[tuple[str, str], ...]:
    """Pairs of airports between which one can fly: the tool itself says so."""
    travel = tool_class("TravelAPI")()
    travel._load_scenario({})
    airports = travel.list_all_airports()
    return tuple((a, b) for a in airports for b in airports if _costs(travel, a, b))


def _costs(travel: Any, start: str, end: str) -> bool:
    try:
        travel.get_flight_cost(start, end, "2025-01-01", "economy")
    except ValueError:  # there is no such route
        return False
    return True


def _a_flight(s: Source, x: Any) -> Arguments:
    known = [route for route in _routes() if all(airport in s.memory.names for airport in route)]
    some = [route for route in _routes() if any(airport in s.memory.names for airport in route)]
    start, end = s.pick(known or some or _routes())
    return {
        "travel_from": start,
        "travel_to": end,
        "travel_date": s.date(),
        "travel_class": s.pick(_CLASSES),
    }


def _admitted(x: Any) -> Arguments | None:
    fits = x.access_token and x.token_expires_in != 0
    return {"access_token": x.access_token} if fits else None


def _a_card(s: Source, x: Any) -> Arguments | None:
    cards = sorted(number for number, card in x.credit_card_list.items() if "balance" in card)
    return {"card_id": s.old("card", cards)} if cards else None


def _a_booking(s: Source, x: Any) -> Arguments | None:
    """A booking that the tools made: those of some scenarios lack what the tools read."""
    there = sorted(
        booking for booking, record in x.booking_record.items() if "travel_cost" in record
    )
    return {"booking_id": s.old("booking", there)} if there else None


def _all(*parts: Arguments | None) -> Arguments | None:
    """All arguments together, or None if a part is missing."""
    if any(part is None for part in parts):
        return None
    return {key: value for part in parts if part is not None for key, value in part.items()}


def _a_currency_pair(s: Source, x: Any) -> Arguments:
    base, target = s.rng.sample(("USD", s.pick(_CURRENCIES)), 2)
    return {"base_currency": base, "target_currency": target, "value": s.number(50, 3000)}


def _a_login(s: Source, x: Any) -> Arguments | None:
    return {
        "client_id": f"client_{s.word()}",
        "client_secret": s.secret(),
        "refresh_token": f"refresh_{s.word()}",
        "grant_type": s.pick(("read_write", "read", "write")),
        "user_first_name": s.name(),
        "user_last_name": s.name(),
    }


def _a_new_card(s: Source, x: Any) -> Arguments | None:
    number = "-".join(str(s.number(1000, 9999)) for _ in range(4))
    return _all(
        _admitted(x),
        {
            "card_number": number,
            "expiration_date": f"{s.number(1, 12):02d}/20{s.number(27, 35)}",
            "cardholder_name": f"{s.name()} {s.name()}",
            "card_verification_number": s.number(100, 999),
        },
    )


def _the_traveler(s: Source, x: Any) -> Arguments | None:
    if not x.user_first_name or not x.user_last_name:
        return None
    return {
        "first_name": x.user_first_name,
        "last_name": x.user_last_name,
        "date_of_birth": s.date(1950, 1999),  # of age, whenever this is run
        "passport_number": f"US{s.number(1000000, 9999999)}",
    }


TOOLS = {
    "authenticate_travel": Tool(
        lambda s, x: _a_login(s, x) if not x.access_token or s.rng.random() < 0.2 else None,
        (
            "log me in for travel: client id {client_id}, secret {client_secret}, refresh token "
            "{refresh_token}, grant type {grant_type}, first name {user_first_name}, last name "
            "{user_last_name}",
            "open a travel session for {user_first_name} {user_last_name} with the client "
            "{client_id}, its secret {client_secret}, the refresh token {refresh_token} and the "
            "grant type {grant_type}",
            "get {user_first_name} {user_last_name} a travel access with the grant type "
            "{grant_type}; the client id is {client_id}, the client secret {client_secret} and "
            "the refresh token {refresh_token}",
        ),
        kinds=_TOKEN,
    ),
    "book_flight": Tool(
        lambda s, x: _all(_admitted(x), _a_card(s, x), _a_flight(s, x)),
        tuple(
            f"book a flight {flies}{pays}"
            for flies, pays in zip(
                _FLIES,
                (
                    ", paid with {card_id} and authorised by {access_token}",
                    "; use {card_id} and {access_token}",
                    ", and charge {card_id} ({access_token})",
                ),
                strict=True,
            )
        ),
        phrases=_FLIGHT,
        kinds={"booking_id": "booking", "card_id": "card", **_TOKEN},
    ),
    "cancel_booking": Tool(
        lambda s, x: _all(_admitted(x), _a_booking(s, x)),
        (
            "cancel {booking_id} with {access_token}",
            "call {booking_id} off, authorised by {access_token}",
            "use {access_token} to cancel {booking_id}",
        ),
        kinds={"booking_id": "booking", **_TOKEN},
    ),
    "compute_exchange_rate": Tool(
        _a_currency_pair,
        (
            "convert {value} {base_currency} to {target_currency}",
            "tell me what {value} {base_currency} are in {target_currency}",
            "work out how many {target_currency} I get for {value} {base_currency}",
        ),
    ),
    "contact_customer_support": Tool(
        lambda s, x: (there := _a_booking(s, x)) and {**there, "message": s.sentence()},
        (
            "tell customer support about {booking_id}: '{message}'",
            "write '{message}' to customer support because of {booking_id}",
            "let the support know '{message}' regarding {booking_id}",
        ),
        kinds={"booking_id": "booking"},
    ),
    "get_all_credit_cards": Tool(
        lambda s, x: {},
        (
            "list all of my credit cards",
            "show which credit cards are registered",
            "tell me which cards I can pay with",
        ),
    ),
    "get_booking_history": Tool(
        lambda s, x: _admitted(x),
        (
            "list everything I have booked, with {access_token}",
            "use {access_token} to show all of my bookings",
            "show what I have booked so far, authorised by {access_token}",
        ),
        kinds=_TOKEN,
    ),
    "get_budget_fiscal_year": Tool(
        lambda s, x: {},
        (
            "tell me which fiscal year my travel budget is for",
            "look up the fiscal year of the budget",
            "check the year that the travel budget belongs to",
        ),
    ),
    "get_credit_card_balance": Tool(
        lambda s, x: _all(_admitted(x), _a_card(s, x)),
        (
            "tell me how much is left on {card_id}, with {access_token}",
            "use {access_token} to check the balance of {card_id}",
            "show the balance of {card_id}, authorised by {access_token}",
        ),
        kinds={"card_id": "card", **_TOKEN},
    ),
    "get_flight_cost": Tool(
        _a_flight,
        tuple(
            f"{asks} {flies}"
            for asks, flies in zip(
                ("tell me what a flight costs", "get the price of a flight", "price a flight"),
                _FLIES,
                strict=True,
            )
        ),
        phrases=_FLIGHT,
    ),
    "get_nearest_airport_by_city": Tool(
        lambda s, x: {"location": s.pick(_CITIES)},
        (
            "look up the airport nearest to {location}",
            "tell me from which airport one flies in {location}",
            "get me the code of the airport close to {location}",
        ),
        names={"nearest_airport": "location"},
    ),
    "list_all_airports": Tool(
        lambda s, x: {},
        (
            "list all airports",
            "tell me which airports there are",
            "show the codes of every airport you know",
        ),
    ),
    "purchase_insurance": Tool(
        lambda s, x: _all(
            _admitted(x),
            _a_card(s, x),
            _a_booking(s, x),
            {
                "insurance_type": s.pick(("basic", "comprehensive", "travel")),
                "insurance_cost": s.number(20, 200),
            },
        ),
        (
            "buy a {insurance_type} insurance for {booking_id} at {insurance_cost} dollars, paid "
            "with {card_id} and authorised by {access_token}",
            "insure {booking_id}: {insurance_type}, {insurance_cost} dollars, {card_id}, "
            "{access_token}",
            "get {booking_id} insured ({insurance_type}) for {insurance_cost} dollars from "
            "{card_id}, with {access_token}",
        ),
        kinds={"booking_id": "booking", "card_id": "card", **_TOKEN},
    ),
    "register_credit_card": Tool(
        _a_new_card,
        (
            "register the credit card {card_number} of {cardholder_name}, valid until "
            "{expiration_date}, verification number {card_verification_number}, with "
            "{access_token}",
            "use {access_token} to save a card: number {card_number}, holder {cardholder_name}, "
            "expires {expiration_date}, verification number {card_verification_number}",
            "enter {cardholder_name}'s card {card_number} ({expiration_date}, verification number "
            "{card_verification_number}), authorised by {access_token}",
        ),
        kinds={"card_id": "card", **_TOKEN},
    ),
    "retrieve_invoice": Tool(
        lambda s, x: _all(_admitted(x), _a_booking(s, x)),
        (
            "get me the invoice of {booking_id}, with {access_token}",
            "use {access_token} to show the invoice for {booking_id}",
            "send me the bill of {booking_id}, authorised by {access_token}",
        ),
        kinds={"booking_id": "booking", **_TOKEN},
    ),
    "set_budget_limit": Tool(
        lambda s, x: _all(_admitted(x), {"budget_limit": s.number(5, 90) * 100}),
        (
            "limit my travel budget to {budget_limit} dollars, with {access_token}",
            "use {access_token} to set my budget to at most {budget_limit} dollars",
            "cap what I spend on travel at {budget_limit} dollars, authorised by {access_token}",
        ),
        kinds=_TOKEN,
    ),
    "travel_get_login_status": Tool(
        lambda s, x: {},
        (
            "check whether I am logged in for travel",
            "tell me if my travel session is active",
            "see if I am signed in at the travel agency",
        ),
    ),
    "verify_traveler_information": Tool(
        _the_traveler,
        (
            "verify the traveler {first_name} {last_name}, born {date_of_birth}, passport "
            "{passport_number}",
            "check my travel data: {first_name} {last_name}, date of birth {date_of_birth}, "
            "passport number {passport_number}",
            "confirm that {first_name} {last_name}, born on {date_of_birth} with the passport "
            "{passport_number}, may travel",
        ),
    ),
}
"""By the tool's name."""
