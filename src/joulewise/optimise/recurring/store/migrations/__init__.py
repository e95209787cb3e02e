"""Alembic's migrations of the schema: one file for each revision in ``versions/``.

- ``env``: what alembic runs; it takes the connection and the transaction of ``database``
"""
