"""Serve models over HTTP: queue, application and page of ``nmt-serve`` (extra ``serve``)."""
