"""What lives in the measured program: standard library only, Python 3.8, nothing of joulewise.

::

    install.py        the environment with which a command gets its marks
    site/             what its interpreters find on PYTHONPATH when they start
    waking.py         waits there until a framework is imported, then loads its hook:
      keras_fit.py      Keras 2 and 3
      lightning_fit.py  Lightning
      hugging_face.py   the Trainer of transformers
      torch_hooks.py    loops of one's own on PyTorch and accelerate
    frameworks.py     which frameworks were imported, their versions and how long they were used
    trainings.py      what a framework's trainer tells, as marks
    plain_loop.py     what is guessed from loaders and optimisers, as marks
    marks.py          the writer; the library uses it too
"""
