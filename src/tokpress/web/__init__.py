"""`tokpress view`: stores, runs and training steps as a page in a browser.

In: stores (and files of events and meters) that are named when the server starts. Out: one static page, and views as JSON.
The server only reads, only what it was given, and answers only on this machine to who has the token.

    server      a free port of 127.0.0.1, a token, a browser
    app         the routes of all views, put together
    security    who may ask, and the headers of every answer
    assets      the page itself: files of `static`, read once
    session     what this server shows: stores by number, engines, runs, meters
    answering   a function of a request's parameters -> an endpoint: bounded work, errors as JSON
    parameters  numbers and names of a query, checked
    snippets    the Python that gives what a view shows
    routes/     one file a view
"""
