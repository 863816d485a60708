from __future__ import annotations

import os
import signal
import threading

import pytest

from nmt.errors import Terminated
from nmt.runtime.signals import raise_terminated, stop_signals


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_without_a_signal_nothing_is_requested():
    with stop_signals() as stop:
        assert stop.requested is None


def test_sigterm_can_arrive_more_than_once():
    with stop_signals() as stop:
        send(signal.SIGTERM)
        send(signal.SIGTERM)
        assert stop.requested == "SIGTERM"


def test_the_first_ctrl_c_requests_and_the_second_interrupts():
    with stop_signals() as stop:
        send(signal.SIGINT)
        assert stop.requested == "SIGINT"
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_ctrl_c_after_sigterm_is_a_request():
    with stop_signals() as stop:
        send(signal.SIGTERM)
        send(signal.SIGINT)
        assert stop.requested == "SIGTERM"
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def test_a_closed_terminal_requests_to_stop_except_under_nohup():
    with stop_signals() as stop:
        send(signal.SIGHUP)
        assert stop.requested == "SIGHUP"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stop, raise_terminated():
            send(signal.SIGHUP)
            assert stop.requested is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_raised_with_its_exit_code(number, code):
    with pytest.raises(Terminated) as caught, raise_terminated():
        send(number)
    assert caught.value.exit_code == code


def test_handlers_are_restored_even_after_an_error():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError), stop_signals():
        raise RuntimeError
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_outside_of_the_main_thread_nothing_is_requested():
    seen = []

    def work():
        with stop_signals() as stop:
            seen.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None]
