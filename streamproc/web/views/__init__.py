"""The views of the page: each file has what draws a view, and the handler that serves it."""
