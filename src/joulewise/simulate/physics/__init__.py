"""A board in time: governor, heat, and a pure function that plays them (``play``)."""
