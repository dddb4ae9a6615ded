"""Signals become a request; only a second Ctrl-C stops at once."""

import signal
import threading

import pytest

from counterpoint.engine.stop_signals import SIGNALS, stop_on_signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_each_signal_asks_to_stop_with_the_shells_exit_code(number: signal.Signals, code: int) -> None:
    with stop_on_signals() as request:
        assert not request
        signal.raise_signal(number)
        assert request
        assert request.exit_code == code


@pytest.mark.parametrize("later", [signal.SIGTERM, signal.SIGUSR1])
@pytest.mark.parametrize("first", SIGNALS)
def test_a_scheduler_may_send_more_while_the_state_is_saved(first: signal.Signals, later: signal.Signals) -> None:
    with stop_on_signals() as request:
        signal.raise_signal(first)
        signal.raise_signal(later)
        assert request.exit_code == 128 + first


@pytest.mark.parametrize("first", SIGNALS)
def test_ctrl_c_after_a_request_stops_at_once(first: signal.Signals) -> None:
    with stop_on_signals():
        signal.raise_signal(first)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_the_handlers_are_put_back() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with stop_on_signals():
        assert [signal.getsignal(number) for number in SIGNALS] != before
    assert [signal.getsignal(number) for number in SIGNALS] == before
    with pytest.raises(ZeroDivisionError), stop_on_signals():
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_outside_the_main_thread_nothing_changes() -> None:
    before, seen = signal.getsignal(signal.SIGINT), []

    def body() -> None:
        with stop_on_signals() as request:
            seen.append((signal.getsignal(signal.SIGINT), bool(request)))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert seen == [(before, False)]
