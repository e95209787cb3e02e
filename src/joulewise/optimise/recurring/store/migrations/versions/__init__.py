"""The revisions of the schema, in order; one that was released is never changed.

- ``revision_0001``: the first schema
"""
