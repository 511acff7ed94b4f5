"""MessageAPI: users of a workspace, and messages to them."""

import re
from typing import Any

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool

_USER = {"user_id": "user", "receiver_id": "user"}


def _a_message(s: Source, x: Any) -> Arguments | None:
    others = sorted(user for user in x.user_map.values() if user != x.current_user)
    if not x.current_user or not others:
        return None
    known = s.named(others)
    receiver = s.pick(known) if known and s.rng.random() < 0.6 else s.old("user", others)
    return {"receiver_id": receiver, "message": s.sentence()}


def _a_receiver(s: Source, x: Any) -> Arguments | None:
    receivers = sorted({next(iter(message)) for message in x.inbox})
    fits = x.current_user and receivers
    return {"receiver_id": s.old("user", receivers)} if fits else None


def _a_keyword(s: Source, x: Any) -> Arguments | None:
    texts = [str(text) for message in x.inbox for text in message.values() if isinstance(text, str)]
    words = sorted({*re.findall(r"(?<![\w.])[a-z]{5,}(?![\w.])", " ".join(texts))})
    return {"keyword": s.pick(words)} if x.current_user and words else None


def _a_login(s: Source, x: Any) -> Arguments | None:
    users = sorted(x.user_map.values())
    return {"user_id": s.pick(users)} if users and not x.current_user else None


def _logged_in(s: Source, x: Any) -> Arguments | None:
    return {} if x.current_user else None


TOOLS = {
    "add_contact": Tool(
        lambda s, x: {"user_name": s.name()},
        (
            "save {user_name} as a new contact",
            "put {user_name} on my list of contacts",
            "enter a contact named {user_name}",
        ),
        kinds={"user_id": "user"},
        names={"user_id": "user_name"},
    ),
    "delete_message": Tool(
        _a_receiver,
        (
            "delete the latest message to {receiver_id}",
            "take back what I last sent to {receiver_id}",
            "remove my last message for {receiver_id}",
        ),
        kinds=_USER,
    ),
    "get_message_stats": Tool(
        _logged_in,
        (
            "give me the figures of my messages",
            "tell me how many messages and contacts I have had",
            "show the statistics of my workspace messages",
        ),
    ),
    "get_user_id": Tool(
        lambda s, x: {"user": s.pick(sorted(x.user_map))} if x.user_map else None,
        (
            "look up the user id of {user}",
            "tell me which id {user} has",
            "get me the workspace id of {user}",
        ),
        kinds={"user_id": "user"},
        names={"user_id": "user"},
    ),
    "list_users": Tool(
        lambda s, x: {},
        (
            "list everybody in the workspace",
            "tell me who is in this workspace",
            "show the names of all users",
        ),
    ),
    "message_get_login_status": Tool(
        lambda s, x: {},
        (
            "check whether I am logged in to the workspace",
            "tell me if my workspace session is active",
            "see if somebody is logged in for messages",
        ),
    ),
    "message_login": Tool(
        _a_login,
        (
            "log me in to the workspace as {user_id}",
            "sign in for messages with the id {user_id}",
            "open my workspace session, my id is {user_id}",
        ),
        kinds=_USER,
    ),
    "search_messages": Tool(
        _a_keyword,
        (
            "search the messages for '{keyword}'",
            "show me the messages in which '{keyword}' occurs",
            "look through the messages for the word '{keyword}'",
        ),
    ),
    "send_message": Tool(
        _a_message,
        (
            "send '{message}' to {receiver_id}",
            "write {receiver_id} the message '{message}'",
            "let {receiver_id} know: '{message}'",
        ),
        kinds=_USER,
    ),
    "view_messages_sent": Tool(
        _logged_in,
        (
            "show all messages that were sent",
            "let me see what I have sent so far",
            "list the messages that went out",
        ),
    ),
}
"""By the tool's name."""
