"""What is remembered: within bounds, the newest used."""

from consumer.remembered import Remembered


def test_what_was_longest_unused_is_forgotten() -> None:
    remembered: Remembered[str] = Remembered(6, len)
    remembered.keep("a", "xxx")
    remembered.keep("b", "xx")
    assert remembered.get("a") == "xxx"
    remembered.keep("c", "xxx")
    assert (remembered.get("a"), remembered.get("b"), remembered.get("c")) == ("xxx", None, "xxx")


def test_what_is_larger_than_all_is_not_kept_and_displaces_nothing() -> None:
    remembered: Remembered[str] = Remembered(6, len)
    remembered.keep("a", "xxx")
    remembered.keep("b", "xxxxxxx")
    assert (remembered.get("a"), remembered.get("b")) == ("xxx", None)
