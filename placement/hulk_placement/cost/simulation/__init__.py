"""Discrete events: what a closed form is checked with, and what ranks the last candidates."""
