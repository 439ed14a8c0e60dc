"""A plan as people see it: `view` takes it apart into rows, `html` makes a page of them.

The rows are what terminal tables, JSON and the page are made of, so that they say the same.
"""
