"""Schedules to look at: figures, blocks and links as rows, and drawings of them.

rows      what is known of a schedule, as programs get it
view      schedule --> rows
tracks    rows --> what each device and link does, in order
sections  what is shown of a schedule that is too long: warm-up, one period, cool-down
drawing   tracks and sections --> rectangles and words
html      a page, a part of a page, an SVG file
"""
