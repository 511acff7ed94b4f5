"""TradingBot: stocks by their symbols, orders by their numbers, an account."""

from typing import Any

from env_service.environments.bfcl.synthesis.sources import Arguments, Source, Tool

_ORDER = {"order_id": "order"}
_STOCK = {"symbol": "stock", "stock": "stock"}
_COMPANIES = ("Apple", "Google", "Tesla", "Microsoft", "Nvidia", "Zeta Corp", "Alpha Tech")


def _a_stock(s: Source, x: Any, among: list[str] | None = None) -> str | None:
    there = sorted(x.stocks) if among is None else among
    known = s.named(there)
    if known and s.rng.random() < 0.6:
        return s.pick(known)
    return s.old("stock", there) if there else None


def _orders(x: Any, *statuses: str) -> list[int]:
    """Orders that have a status; some scenarios keep other things beside them."""
    there = [(key, order) for key, order in x.orders.items() if isinstance(order, dict)]
    return [key for key, order in there if not statuses or order.get("status") in statuses]


def _an_order(s: Source, x: Any) -> Arguments | None:
    there = _orders(x)
    return {"order_id": s.old("order", there)} if there else None


def _an_open_order(s: Source, x: Any) -> Arguments | None:
    there = _orders(x, "Open", "Pending")
    return {"order_id": s.old("order", there)} if there else None


def _a_new_order(s: Source, x: Any) -> Arguments | None:
    symbol = _a_stock(s, x)
    if not x.authenticated or symbol is None:
        return None
    return {
        "order_type": s.pick(("Buy", "Sell")),
        "symbol": symbol,
        "price": x.stocks[symbol]["price"],
        "amount": s.number(2, 20),
    }


def _unwatched(s: Source, x: Any) -> Arguments | None:
    stock = _a_stock(s, x, sorted(set(x.stocks).difference(x.watch_list)))
    return {"stock": stock} if stock else None


def _watched(s: Source, x: Any) -> Arguments | None:
    fits = x.authenticated and x.watch_list
    return {"symbol": _a_stock(s, x, list(x.watch_list))} if fits else None


def _some_stocks(s: Source, x: Any) -> list[str] | None:
    there = sorted(x.stocks)
    return s.rng.sample(there, s.number(2, 4)) if len(there) > 3 else None


def _in_range(s: Source, x: Any) -> Arguments | None:
    stocks = _some_stocks(s, x)
    prices = {"min_price": s.number(1, 20) * 10, "max_price": s.number(30, 90) * 10}
    return {"stocks": stocks, **prices} if stocks else None


def _alerts(s: Source, x: Any) -> Arguments | None:
    stocks = _some_stocks(s, x)
    return {"stocks": stocks, "threshold": s.number(1, 9) / 100} if stocks else None


def _logged_in(s: Source, x: Any) -> Arguments | None:
    return {} if x.authenticated else None


def _an_amount(s: Source, x: Any, most: float) -> Arguments | None:
    return {"amount": s.number(1, int(most // 100)) * 100} if most >= 100 else None


TOOLS = {
    "add_to_watchlist": Tool(
        _unwatched,
        (
            "put {stock} on my watch list",
            "keep an eye on {stock} for me: it belongs on my watch list",
            "start watching {stock}",
        ),
        kinds=_STOCK,
    ),
    "cancel_order": Tool(
        _an_open_order,
        (
            "cancel {order_id}",
            "call off {order_id}",
            "stop {order_id} before it is done",
        ),
        kinds=_ORDER,
    ),
    "filter_stocks_by_price": Tool(
        _in_range,
        (
            "tell me which of {stocks} cost between {min_price} and {max_price} dollars",
            "narrow {stocks} down to prices from {min_price} to {max_price} dollars",
            "pick from {stocks} what costs at least {min_price} and at most {max_price} dollars",
        ),
    ),
    "fund_account": Tool(
        lambda s, x: _an_amount(s, x, 5000) if x.authenticated else None,
        (
            "deposit {amount} dollars in my account",
            "pay {amount} dollars into my account",
            "top my account up by {amount} dollars",
        ),
    ),
    "get_account_info": Tool(
        _logged_in,
        (
            "show me my account, with its balance",
            "tell me how much money my trading account has and which card is bound to it",
            "give me the details of my trading account",
        ),
    ),
    "get_available_stocks": Tool(
        lambda s, x: {"sector": s.pick(("Technology", "Automobile"))},
        (
            "list the stocks of the sector {sector}",
            "tell me which stocks there are in {sector}",
            "show what I can buy in the {sector} sector",
        ),
        kinds={"stock_list": "stock"},
    ),
    "get_current_time": Tool(
        lambda s, x: {},
        ("tell me what time it is", "give me the time of the market", "check the clock"),
    ),
    "get_order_details": Tool(
        _an_order,
        ("show me {order_id}", "give me the details of {order_id}", "tell me what {order_id} is"),
        kinds={**_ORDER, "symbol": "stock"},
    ),
    "get_order_history": Tool(
        _logged_in,
        (
            "list all orders I have placed",
            "show my orders so far",
            "give me the numbers of all of my orders",
        ),
        kinds={"history": "order"},
    ),
    "get_stock_info": Tool(
        lambda s, x: {"symbol": symbol} if (symbol := _a_stock(s, x)) else None,
        (
            "tell me how {symbol} is doing",
            "give me price and volume of {symbol}",
            "show the latest figures of {symbol}",
        ),
        kinds={**_STOCK, "price": "price"},
    ),
    "get_symbol_by_name": Tool(
        lambda s, x: {"name": s.pick(_COMPANIES)},
        (
            "look up the symbol of {name}",
            "tell me the ticker of the company {name}",
            "get me the stock symbol that {name} trades under",
        ),
        kinds=_STOCK,
        names={"symbol": "name"},
    ),
    "get_transaction_history": Tool(
        _logged_in,
        (
            "list all payments to and from my account",
            "show every transaction of my account",
            "give me the record of my deposits and withdrawals",
        ),
    ),
    "get_watchlist": Tool(
        _logged_in,
        (
            "show my watch list",
            "tell me which stocks I am watching",
            "read me the stocks on my watch list",
        ),
        kinds={"watchlist": "stock"},
    ),
    "notify_price_change": Tool(
        _alerts,
        (
            "tell me which of {stocks} moved by more than {threshold} percent",
            "check {stocks} for changes of price above {threshold} percent",
            "warn me about those of {stocks} that changed by over {threshold} percent",
        ),
    ),
    "place_order": Tool(
        _a_new_order,
        (
            "{order_type} {amount} shares of {symbol} at {price}",
            "{order_type} {symbol}: {amount} shares at a price of {price} each",
            "{order_type} {amount} times {symbol} for {price} a share",
        ),
        phrases={"order_type": {"Buy": "buy", "Sell": "sell"}},
        kinds={**_ORDER, "symbol": "stock", "price": "price"},
    ),
    "remove_stock_from_watchlist": Tool(
        _watched,
        (
            "take {symbol} off my watch list",
            "stop watching {symbol}",
            "drop {symbol} from the stocks I watch",
        ),
        kinds=_STOCK,
    ),
    "trading_get_login_status": Tool(
        lambda s, x: {},
        (
            "check whether I am logged in for trading",
            "tell me if my trading session is active",
            "see if I am signed in at the broker",
        ),
    ),
    "trading_login": Tool(
        lambda s, x: (
            {"username": s.word(), "password": s.secret()} if not x.authenticated else None
        ),
        (
            "log me in for trading as {username} with the password {password}",
            "sign in at the broker, user {username}, password {password}",
            "open my trading session: I am {username}, and the password is {password}",
        ),
    ),
    "trading_logout": Tool(
        lambda s, x: {} if x.authenticated and s.rng.random() < 0.2 else None,
        ("log me out of trading", "end my trading session", "sign me out at the broker"),
    ),
    "withdraw_funds": Tool(
        lambda s, x: (
            _an_amount(s, x, min(5000, x.account_info["balance"]))
            if x.authenticated and x.market_status == "Open"
            else None
        ),
        (
            "take {amount} dollars out of my account",
            "pay {amount} dollars out to me",
            "transfer {amount} dollars from my trading account to my card",
        ),
    ),
}
"""By the tool's name."""
