"""Generator of user events."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
from faker import Faker

from producer.seeds import seeded

_PURCHASE_CHANCE = 0.2
# Maximum age of an event when its batch lands.
_MAX_AGE_US = 10_000_000
_POOL_SIZE = 500
_CURRENCIES = 12
_CENTS = range(100, 100_000)
_ODD_PRICES = {53: "0", 59: "0.00", 61: "-0.0", 67: "-0", 20: "", 71: "1e2"}
"""Special formats of prices, by a divisor of the cents; empty for a whole number."""


@dataclass(frozen=True)
class Product:
    """A product: its id, and its price as a JSON number, usually with two decimals."""

    id: str
    price: msgspec.Raw


@dataclass(frozen=True)
class Pools:
    """Values that are generated once, since Faker is too slow to call per event."""

    users: tuple[str, ...]
    urls: tuple[str, ...]
    user_agents: tuple[str, ...]
    products: tuple[Product, ...]
    currencies: tuple[str, ...]


@dataclass(frozen=True)
class Events:
    """Generates events; see :class:`producer.batches.Maker`."""

    pools: Pools
    evolve_after: int  # number of batches before purchases get a ``product_id``
    key: str = "event_id"
    inside: str = ""

    def make(self, rng: Random, landing_at: datetime, sequence: int) -> dict[str, Any]:
        """Generate an event."""
        return make_event(rng, self.pools, landing_at, with_product=sequence >= self.evolve_after)


def make_pools(seed: int, users: int) -> Pools:
    """Generate the values from which events are drawn."""
    rng = seeded(seed, "pools")
    fake = Faker("en_US")
    fake.seed_instance(rng.getrandbits(64))
    # Not Faker's user_agent(): Firefox's contains a date, which depends on the time zone.
    browsers = (fake.chrome, fake.safari, fake.opera)
    return Pools(
        users=tuple(f"user-{rng.getrandbits(64):016x}" for _ in range(users)),
        urls=tuple(fake.uri() for _ in range(_POOL_SIZE)),
        user_agents=tuple(rng.choice(browsers)() for _ in range(_POOL_SIZE)),
        products=tuple(Product(fake.bothify("P-####??").upper(), _price(rng)) for _ in range(_POOL_SIZE)),
        currencies=tuple(fake.currency_code() for _ in range(_CURRENCIES)),
    )


def make_event(rng: Random, pools: Pools, landing_at: datetime, *, with_product: bool) -> dict[str, Any]:
    """Generate an event that meets the contract of ``events``."""
    happened_at = landing_at - timedelta(microseconds=rng.randrange(_MAX_AGE_US))
    event: dict[str, Any] = {
        "user_id": rng.choice(pools.users),
        "event_id": f"{rng.getrandbits(128):032x}",
        "event_timestamp": happened_at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
    }
    if rng.random() < _PURCHASE_CHANCE:
        product = rng.choice(pools.products)
        event["event_type"] = "purchase"
        if with_product:
            event["product_id"] = product.id
        event["amount"] = product.price
        event["properties"] = {"amount": product.price, "currency": rng.choice(pools.currencies)}
    else:
        event["event_type"] = "page_view"
        event["properties"] = {"url": rng.choice(pools.urls), "user_agent": rng.choice(pools.user_agents)}
    return event


def _price(rng: Random) -> msgspec.Raw:
    cents = rng.choice(_CENTS)
    # Prices as real systems write them: some are whole numbers, some are 0, and some zeros have a sign. Raw text is
    # encoded unchanged, whereas a float would lose the last zero of 12.50.
    for divisor, text in _ODD_PRICES.items():
        if not cents % divisor:
            return msgspec.Raw((text or str(cents // 100)).encode())
    return msgspec.Raw(f"{cents // 100}.{cents % 100:02d}".encode())
