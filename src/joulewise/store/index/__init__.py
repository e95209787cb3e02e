"""An index of the folders in a store, so that a list does not read all of them.

::

    run_entry.py     what the index holds of a run, and queries for runs
    folder_index.py  listing a store, bringing the index up to date, answering a query
    database.py      the SQLite file: where it lies, its tables (one a kind of folder), its seal
    conditions.py    a part of a query, as SQL
    progress.py      who is told how far a long update is

The run directories are the truth. The index is one SQLite file, ``<store>/.index.sqlite``, which
any command brings up to date before it reads it, and which can be deleted at any time.

When is a row up to date? On each use the store is listed and ``run.json`` and ``result.json`` of
every run are stat'ed (3 µs each). A query that neither selects nor sorts by energy or time, which
alone come from ``result.json``, stats that file only in the runs that it selects. A row holds while
inode, size, modification time and change time of both files are what they were when it was made.
The kernel sets the change time: a copy with old modification times is noticed, and so is an edit in
place. A row is not stored where a file changed less than 2 s before it was read, because a second
change could have left the same times (file times advance in steps of some milliseconds). Neither is
one that could not be read for a reason that may pass (permissions, an input/output error), or one
of a symbolic link. Whether a run is being recorded, and its joules so far, are read on each use.

What if the file cannot be used? The list is the same; nothing is printed:

- The store belongs to another user, can be written by others, cannot be written by us, or lies on
  a network file system, where locks may not hold: the index lies in the user's cache folder, one
  for each machine. Nobody else can then put rows into it, and root leaves no file of its own in
  the store of a user.
- That cannot be written either, or both are locked for long: the index is made in memory.
- The disk is full, or the file is locked by a writer: changes are held in memory beside it.
- It is damaged, or of a joulewise that reads other formats: it is made again. If anybody but
  joulewise changed the file, or the machine was booted since, the checksums of all rows are
  verified.
"""
