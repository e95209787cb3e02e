"""The store as web pages on this machine: read-only, on loopback, for whoever has the address.

::

    server.py     the HTTP server: checks each request, limits connections, sends responses
    site.py       which address shows which page; runs in progress
    listing.py    the list of runs and sweeps: filtered, sorted, in pages
    lookup.py     finds what an address names in the store; renders and caches reports
    templates/    Jinja2 templates, style and script of the list and of runs in progress
"""
