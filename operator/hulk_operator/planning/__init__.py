"""The one serialised planning pass that owns every reservation of accelerators."""
