"""Signals that ask a command to end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest

from nmt.errors import Terminated
from nmt.runtime.signals import raise_interrupted, raise_terminated, stop_signals


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize(
    ("sent", "requested"),
    [
        ([], None),
        ([signal.SIGTERM, signal.SIGTERM], "SIGTERM"),
        ([signal.SIGINT], "SIGINT"),
        ([signal.SIGTERM, signal.SIGINT], "SIGTERM"),
    ],
)
def test_the_first_signal_is_the_request_and_a_second_ctrl_c_interrupts(sent, requested):
    with stop_signals() as stop:
        for number in sent:
            send(number)
        assert stop.requested == requested
        if signal.SIGINT in sent:
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


@pytest.mark.parametrize(
    ("block", "number", "expected"),
    [
        (raise_terminated, signal.SIGTERM, Terminated),
        (raise_interrupted, signal.SIGINT, KeyboardInterrupt),
    ],
)
def test_an_error_of_code_that_dropped_the_exception_is_the_signal(block, number, expected):
    """Python drops an exception that a signal handler raises in a callback from C."""

    def call() -> None:
        with contextlib.suppress(expected):
            send(number)
        raise RuntimeError("the callback failed")

    with pytest.raises(expected), block():
        call()


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
