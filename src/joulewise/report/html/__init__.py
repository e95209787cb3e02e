"""One HTML file that opens offline, made from what is said of a run, a sweep or a comparison."""
