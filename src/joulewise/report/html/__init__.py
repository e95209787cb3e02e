"""Reports as one HTML file that opens offline, of a run, a sweep, a comparison or a job.

::

    pages.py      builds the content of each kind of page
    render.py     HtmlPage and its parts; renders and writes the file
    templates/    page.html (Jinja2), page.css, page.js (draws figures), theme.js (light or dark)
"""
