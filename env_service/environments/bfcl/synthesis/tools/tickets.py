"""TicketAPI: support tickets, by their numbers."""

from typing import Any

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool

_TICKET = {"ticket_id": "ticket"}


def _tickets(x: Any, *, unfinished: bool = False) -> list[int]:
    finished = ("closed", "resolved") if unfinished else ()
    return [
        ticket["id"]
        for ticket in x.ticket_queue
        if "id" in ticket and str(ticket.get("status", "")).lower() not in finished
    ]


def _a_ticket(s: Source, x: Any) -> Arguments | None:
    there = _tickets(x)
    return {"ticket_id": s.old("ticket", there)} if there else None


def _an_open_ticket(s: Source, x: Any) -> Arguments | None:
    there = [number for number in _tickets(x, unfinished=True) if _has_status(x, number)]
    return {"ticket_id": s.old("ticket", there)} if there else None


def _has_status(x: Any, ticket_id: int) -> bool:
    """Some scenarios have tickets without a status, and closing one of them fails."""
    return any(ticket.get("id") == ticket_id and "status" in ticket for ticket in x.ticket_queue)


def _a_new_ticket(s: Source, x: Any) -> Arguments | None:
    new = {"title": s.sentence(), "description": s.sentence(), "priority": s.number(1, 5)}
    return new if x.current_user else None


def _an_update(s: Source, x: Any) -> Arguments | None:
    there = _a_ticket(s, x)
    updates: Arguments = {"priority": s.number(1, 5)}
    if s.rng.random() < 0.5:
        updates = {"title": s.sentence()}
    return there and {**there, "updates": updates}


TOOLS = {
    "close_ticket": Tool(
        _an_open_ticket,
        ("close {ticket_id}", "mark {ticket_id} as closed", "shut {ticket_id}, it is done"),
        kinds=_TICKET,
    ),
    "create_ticket": Tool(
        _a_new_ticket,
        (
            "open a ticket titled '{title}' with the description '{description}' and the priority "
            "{priority}",
            "file a ticket: title '{title}', description '{description}', priority {priority}",
            "report '{title}' as a ticket of priority {priority}, described as '{description}'",
        ),
        kinds={"id": "ticket"},
    ),
    "edit_ticket": Tool(
        _an_update,
        (
            "change {ticket_id} to {updates}",
            "update {ticket_id}: {updates}",
            "correct {ticket_id} so that it has {updates}",
        ),
        kinds=_TICKET,
    ),
    "get_ticket": Tool(
        _a_ticket,
        ("show me {ticket_id}", "give me the details of {ticket_id}", "read {ticket_id} to me"),
        kinds=_TICKET,
    ),
    "get_user_tickets": Tool(
        lambda s, x: {} if x.current_user else None,
        (
            "list all tickets that I have opened",
            "show every ticket of mine",
            "tell me which tickets are mine",
        ),
        kinds={"id": "ticket"},
    ),
    "logout": Tool(
        lambda s, x: {} if x.current_user and s.rng.random() < 0.3 else None,
        (
            "log me out of the ticket system",
            "end my session in the ticket system",
            "sign me out of the support desk",
        ),
    ),
    "resolve_ticket": Tool(
        lambda s, x: (there := _an_open_ticket(s, x)) and {**there, "resolution": s.sentence()},
        (
            "resolve {ticket_id} with '{resolution}'",
            "mark {ticket_id} as resolved, the resolution is '{resolution}'",
            "settle {ticket_id} by '{resolution}'",
        ),
        kinds=_TICKET,
    ),
    "ticket_get_login_status": Tool(
        lambda s, x: {},
        (
            "check whether I am logged in to the ticket system",
            "tell me if my support session is active",
            "see if I am signed in at the support desk",
        ),
    ),
    "ticket_login": Tool(
        lambda s, x: {"username": s.word(), "password": s.secret()} if not x.current_user else None,
        (
            "log me in to the ticket system as {username} with the password {password}",
            "sign in at the support desk, user {username}, password {password}",
            "open my ticket session: I am {username}, and the password is {password}",
        ),
    ),
}
"""By the tool's name."""
