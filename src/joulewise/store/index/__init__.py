"""An index of the folders in a store, so that a list does not read all of them.

The run directories are the truth. The index is one SQLite file, `<store>/.index.sqlite`, which
any command brings up to date before it reads it, and which can be deleted at any time.

When is a row up to date? On each use the store is listed and ``run.json`` and ``result.json`` of
every run are stat'ed (3 µs each). What neither selects nor sorts by energy or time, which alone
come from ``result.json``, has that file looked at in the runs that it selects only. A row holds
while inode, size, modification time and change time of both are what they were when it was made.
The change time is set by the kernel: a copy with old modification times is noticed, and so is an
edit in place. A row of which a file changed less than 2 s before it was read is not kept, because
a second change could have left the same times (the times of a file advance in steps of some
milliseconds). Neither is one that could not be read for a reason that may pass (permissions, an
input/output error), or one that is a symbolic link. Whether a run is being recorded, and its
joules so far, are read anew on each use.

What if the file cannot be used? The list is the same; nothing is printed:

- The store belongs to another user, can be written by others, cannot be written by us, or lies on
  a network file system, where locks may not hold: the index is in the user's cache folder, one
  for each machine. Nobody else can then put rows into it, and root leaves no file of its own in
  the store of a user.
- That cannot be written either, or both are locked for long: the index is made in memory.
- The disk is full, or the file is locked by a writer: what has changed is held in memory beside it.
- It is damaged, or of a joulewise that reads other formats: it is made anew. A file that was
  changed by anybody but joulewise, or before the last boot, has the checksums of all its rows
  verified.

Modules: ``stamps`` lists a store and stats its files; ``kind`` says what the index holds of a
folder; ``run_entry`` is that of a run; ``location`` is where the file lies; ``database`` is the
file; ``folder_index`` brings it up to date and answers queries; ``condition`` is a part of a query;
``progress`` is told how far a long update is.
"""
