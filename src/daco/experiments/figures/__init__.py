"""Pictures drawn with Matplotlib: sharp in print, and safe for colour-blind readers.

``style`` has colours, shapes and files; ``studies`` draws tables of a study, ``models`` single
models. Each function returns a new Figure.
"""
