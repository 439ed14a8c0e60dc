"""Where places are, and what light takes between them."""
