"""Generator of a clickstream: sessions of visitors with referrers, searches, products and carts."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

from faker import Faker

from producer.seeds import seeded

_MAX_AGE_US = 10_000_000  # maximum age of an event when its batch lands
_LEAVES = 0.15
_DIRECT = 0.3
_REFERRERS = 50
_QUERIES = 200
_PRODUCTS = 500
_AGENTS = 100
_RESULTS = 20


@dataclass(frozen=True)
class Visitor:
    """A visitor of the shop."""

    id: str
    ip: str
    user_agent: str


@dataclass(frozen=True)
class Shop:
    """Values that are generated once, since Faker is too slow to call per event."""

    visitors: tuple[Visitor, ...]
    referrers: tuple[str, ...]
    queries: tuple[str, ...]
    products: tuple[str, ...]


def make_shop(seed: int, visitors: int) -> Shop:
    """Generate the values from which events are drawn."""
    rng = seeded(seed, "shop")
    fake = Faker("en_US")
    fake.seed_instance(rng.getrandbits(64))
    browsers = (fake.chrome, fake.safari, fake.opera)  # Firefox's contains a date, which depends on the time zone
    agents = [rng.choice(browsers)() for _ in range(_AGENTS)]
    return Shop(
        visitors=tuple(
            Visitor(
                f"visitor-{rng.getrandbits(64):016x}",
                fake.ipv6() if rng.random() < 0.5 else fake.ipv4_public(),
                rng.choice(agents),
            )
            for _ in range(visitors)
        ),
        referrers=tuple(fake.uri() for _ in range(_REFERRERS)),
        queries=tuple(" ".join(fake.words(rng.choice((1, 1, 2, 3)))) for _ in range(_QUERIES)),
        products=tuple(fake.bothify("P-####??").upper() for _ in range(_PRODUCTS)),
    )


@dataclass
class Browsing:
    """Generates events of the clickstream; see :class:`producer.batches.Maker`.

    Faults are made inside ``event``: the collector refuses a post whose events lack an id or type.
    """

    shop: Shop
    key: str = "id"
    inside: str = "event"
    _pages: dict[str, str] = field(default_factory=dict)
    """Current page by visitor; visitors without one begin a session."""

    def make(self, rng: Random, landing_at: datetime, sequence: int) -> dict[str, Any]:  # noqa: ARG002 - nothing evolves
        """Generate the next event of a visitor."""
        visitor = rng.choice(self.shop.visitors)
        before = self._pages.get(visitor.id)
        kind, action = self._begin(rng) if before is None else self._go_on(rng, before)
        if rng.random() < _LEAVES:
            self._pages.pop(visitor.id, None)
        else:
            self._pages[visitor.id] = action["page"]
        happened_at = landing_at - timedelta(microseconds=rng.randrange(_MAX_AGE_US))
        event = {
            "visitor": visitor.id,
            "user_agent": visitor.user_agent,
            "ip": visitor.ip,
            "timestamp": happened_at.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z",
        }
        return {"id": rng.getrandbits(53), "type": kind, "event": event | action}

    def _begin(self, rng: Random) -> tuple[str, dict[str, Any]]:
        page = rng.choice(("/", "/", "/sale", self._product(rng)))
        return "page_view", {"page": page} if rng.random() < _DIRECT else {
            "page": page,
            "referrer": rng.choice(self.shop.referrers),
        }

    def _go_on(self, rng: Random, before: str) -> tuple[str, dict[str, Any]]:
        chance = rng.random()
        if before == "/search" and chance < 0.6:
            product = rng.choice(self.shop.products)
            return "click", {"page": before, "product": product, "position": rng.randrange(_RESULTS)}
        if before.startswith("/products/") and chance < 0.3:
            return "add_to_cart", {"page": before, "product": before.removeprefix("/products/")}
        if chance < 0.5:
            return "search", {"page": "/search", "query": rng.choice(self.shop.queries), "referrer": before}
        return "page_view", {"page": rng.choice(("/", "/cart", self._product(rng))), "referrer": before}

    def _product(self, rng: Random) -> str:
        return f"/products/{rng.choice(self.shop.products)}"
