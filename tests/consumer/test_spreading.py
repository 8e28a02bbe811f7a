"""Work is dealt to tasks."""

from hypothesis import given
from hypothesis import strategies as st

from consumer.spreading import balanced


@given(st.lists(st.integers(0, 100)), st.integers(1, 5))
def test_each_item_is_dealt_once_and_no_group_is_much_heavier(costs: list[int], groups: int) -> None:
    dealt = balanced(enumerate(costs), groups, lambda item: item[1])
    assert sorted(item for group in dealt for item in group) == list(enumerate(costs))
    assert len(dealt) <= groups
    assert all(dealt)
    weights = [sum(cost for _, cost in group) for group in dealt] + [0] * (groups - len(dealt))
    # The heaviest group got its last item while it was the lightest of all.
    assert max(weights) - min(weights) <= max(costs, default=0)
