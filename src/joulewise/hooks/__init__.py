"""Code that runs in the measured program, and marks its trainings, epochs and steps.

It uses the standard library only, runs on Python 3.8 and later, and imports nothing of joulewise.

::

    install.py          the environment in which a command loads the hooks
    site/               the sitecustomize that its interpreters find on PYTHONPATH
    import_hook.py      waits until a framework is imported, then loads its hook:
      keras_fit.py        Keras 2 and 3
      lightning_fit.py    Lightning
      hugging_face.py     the Trainer of transformers
      torch_hooks.py      training loops on PyTorch and accelerate without a trainer
    training_events.py  marks what a framework's trainer reports
    plain_loop.py       marks what passes over loaders and updates of optimisers imply
    marks.py            the writer of marks; the library uses it, too
    figures.py          figures that a program logs, as marks
    frameworks.py       which frameworks were imported, their versions, and how long they were used
    out_of_memory.py    notes that a lack of memory ended the program
    ranks.py            which process of a distributed job this is
    safe_calls.py       wrappers that never raise into the program
"""
