"""What lives in the measured program: standard library only, Python 3.8, nothing of joulewise."""
