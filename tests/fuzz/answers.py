"""What random cases must come to."""

from soak.outcome import Outcome


def none_failed(outcome: Outcome, cases: int) -> None:
    """Each was answered, or refused in words."""
    assert outcome.failures == () and outcome.cases == cases
    answered = int(outcome.note.split()[0])
    # Were nothing answered, or everything, the cases would try nothing.
    assert 0 < answered < cases
