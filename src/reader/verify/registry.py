"""All checks, in the order in which they run: each reads its layer before the layer that fills it."""

from reader.verify.check import Check
from reader.verify.checks import gold, landing, proof, receipts, removals, replays, samples, silver, topic

CHECKS: list[Check] = [
    landing.CHECK,
    topic.CHECK,
    removals.CHECK,
    replays.CHECK,
    silver.CHECK,
    gold.CHECK,
    samples.CHECK,
    receipts.CHECK,
    proof.CHECK,
]
